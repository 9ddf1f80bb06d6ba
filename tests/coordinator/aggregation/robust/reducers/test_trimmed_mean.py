"""The coordinate-wise trimmed mean."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.support.aggregation_rounds import robust_settings
from tests.support.robust_rounds import SLICES, assert_close, rounds, updates


@pytest.mark.parametrize(("devices", "f"), [(3, 1), (7, 2), (7, 3), (9, 1)])
@pytest.mark.parametrize("slice_elements", SLICES)
def test_the_trimmed_mean_leaves_out_both_ends(tmp_path: Path, devices: int, f: int, slice_elements: int) -> None:
    models = updates(devices, devices)
    played = rounds(tmp_path, robust_settings(reducer="trimmed_mean", byzantine=f), slice_elements=slice_elements)
    found = played.next(models, [1000, *[1] * (devices - 1)])
    expected = [sum(sorted(column)[f:-f]) / (devices - 2 * f) for column in models.T.tolist()]
    assert_close(found, np.array(expected))


@pytest.mark.parametrize(("devices", "share", "f"), [(5, 0.2, 1), (9, 0.2, 1), (10, 0.2, 2), (10, 0.4, 4)])
def test_a_trimmed_share_is_of_the_rounds_devices(tmp_path: Path, devices: int, share: float, f: int) -> None:
    models = updates(devices, devices)
    found = rounds(tmp_path, robust_settings("trimmed_mean", share=share)).next(models, [1] * devices)
    expected = [sum(sorted(column)[f:-f]) / (devices - 2 * f) for column in models.T.tolist()]
    assert_close(found, np.array(expected))
