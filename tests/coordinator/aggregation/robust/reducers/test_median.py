"""The coordinate-wise median."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.support.aggregation_rounds import robust_settings
from tests.support.robust_rounds import SLICES, assert_close, rounds, updates


@pytest.mark.parametrize("devices", [1, 2, 5, 8])
@pytest.mark.parametrize("slice_elements", SLICES)
def test_the_median_is_taken_in_every_coordinate(tmp_path: Path, devices: int, slice_elements: int) -> None:
    models = updates(devices, devices)
    played = rounds(tmp_path, robust_settings(reducer="median"), slice_elements=slice_elements)
    found = played.next(models, list(range(1, devices + 1)))
    assert_close(found, np.median(models, axis=0))
