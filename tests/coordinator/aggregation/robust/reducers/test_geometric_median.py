"""The geometric median: no point has a smaller sum of distances to the updates."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from moonfed.server_rules.mean import MeanRule
from tests.support.aggregation_rounds import PARAMETERS, robust_settings
from tests.support.robust_rounds import F64, SLICES, assert_close, rounds, updates


def test_the_geometric_median_stops_after_its_iterations(tmp_path: Path) -> None:
    models = updates(3, 5)
    one, few, many = (
        rounds(tmp_path / str(count), robust_settings("geometric_median", iterations=count)).next(models, [1] * 5)
        for count in (1, 3, 1000)
    )
    assert np.linalg.norm(few - many) < np.linalg.norm(one - many)


def sum_of_distances(point: F64, models: F64, weights: F64) -> float:
    return float(weights @ np.linalg.norm(models - point, axis=1))


@pytest.mark.parametrize("devices", [3, 6, 10])
@pytest.mark.parametrize("slice_elements", SLICES)
@pytest.mark.parametrize("weighting", ["samples", "uniform"])
def test_nothing_is_nearer_than_the_geometric_median(
    tmp_path: Path, devices: int, slice_elements: int, weighting: str
) -> None:
    """At the geometric median, the weighted unit vectors to the updates cancel out."""
    models, samples = updates(devices, devices), [10 + number for number in range(devices)]
    rule = MeanRule(weighting="samples") if weighting == "samples" else MeanRule(weighting="uniform")
    found = rounds(tmp_path, robust_settings(reducer="geometric_median"), rule, slice_elements).next(models, samples)
    weights = np.array(samples if weighting == "samples" else [1] * devices, np.float64)
    weights /= weights.sum()
    for columns in (PARAMETERS, ~PARAMETERS):
        point, rows = found[columns], models[:, columns]
        units = (point - rows) / np.linalg.norm(point - rows, axis=1)[:, None]
        assert np.linalg.norm(weights @ units) < 1e-4
        least = sum_of_distances(point, rows, weights)
        assert least < sum_of_distances(weights @ rows, rows, weights)
        assert least < sum_of_distances(np.median(rows, axis=0), rows, weights)


def test_the_geometric_median_is_where_a_majority_agrees(tmp_path: Path) -> None:
    """If more than half of the weight is at one point, no other point has a smaller sum of distances."""
    models = updates(3, 5)
    models[:3] = models[0]
    assert_close(
        rounds(tmp_path, robust_settings(reducer="geometric_median")).next(models, [1] * 5), models[0], rtol=1e-5
    )


def test_the_geometric_median_weighs_by_capped_weights(tmp_path: Path) -> None:
    """One device has nine tenths of the samples: its model is the geometric median, unless its weight is capped."""
    models, samples = updates(8, 5), [1, 1, 1, 1, 36]
    uncapped = rounds(tmp_path / "a", robust_settings(reducer="geometric_median")).next(models, samples)
    assert_close(uncapped, models[4], rtol=1e-5)
    capped_ = rounds(tmp_path / "b", robust_settings(reducer="geometric_median", weight_cap=1.0)).next(models, samples)
    alike = rounds(tmp_path / "c", robust_settings(reducer="geometric_median")).next(models, [1] * 5)
    assert_close(capped_, alike)
