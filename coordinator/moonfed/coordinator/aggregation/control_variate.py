"""SCAFFOLD's control variate c on the server. Karimireddy et al., ICML 2020, algorithm 1.

    c ← c + |S|/N · mean over S of (c_i⁺ − c_i)

S: the round's devices, equally weighted; N: the number of devices in the run. c is 0 before the first round.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from moonfed.blobs.tensors import model_size
from moonfed.bundle.manifest import VARIATE, VARIATE_CHANGE
from moonfed.coordinator.aggregation.closed_round import ClosedRound
from moonfed.coordinator.aggregation.model_files import ranges, read_elements, weighted_sum, writers


def write_next_variate(closed: ClosedRound, path: Path, slice_elements: int) -> None:
    """Write the next c to a path."""
    specs = closed.manifest.downlink[VARIATE]
    size, held = model_size(specs), closed.global_state.get(VARIATE)
    changes = [contribution.files[VARIATE_CHANGE] for contribution in closed.contributions]
    with writers({VARIATE: path}, specs) as files:
        for start, stop in ranges(size, slice_elements):
            c = read_elements(held, size, start, stop).astype(np.float64) if held else np.zeros(stop - start)
            mean = weighted_sum(changes, [1.0] * len(changes), size, start, stop) / len(changes)
            files[VARIATE].write(c + len(changes) / closed.enrolled * mean)
