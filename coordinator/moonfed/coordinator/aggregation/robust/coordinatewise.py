"""Coordinate-wise median and trimmed mean. Yin et al., ICML 2018, definitions 1 and 2.

In every coordinate the f smallest and the f largest values are left out, and the rest is averaged; for the median f is
as large as it can be. All devices count the same, as in the paper: its proof counts devices, and samples are a claim.
Legend: N devices, S coordinates.
"""

from __future__ import annotations

import numpy as np

from moonfed.coordinator.aggregation.model_files import Slice
from moonfed.coordinator.aggregation.robust.config import RobustSettings


def trimmed(robust: RobustSettings, values: Slice) -> Slice:
    """The median or trimmed mean, [S]."""
    devices = len(values)
    f = (devices - 1) // 2 if robust.reducer == "median" else robust.byzantine
    middle: Slice = np.sort(values, axis=0)[f : devices - f].mean(axis=0)
    return middle
