"""The weight cap, compared with a naive loop."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies

from moonfed.coordinator.aggregation.robust.weight_cap import cap_weights
from tests.support.aggregation_rounds import SIZE, robust_settings
from tests.support.robust_rounds import START, rounds


@given(strategies.lists(strategies.integers(1, 10_000_000), min_size=1, max_size=30), strategies.floats(0.01, 1))
def test_no_device_weighs_more_than_the_cap(samples: list[int], cap: float) -> None:
    """Compare with a loop that cuts weights to their share of the sum until nothing changes."""
    found = np.array(cap_weights(samples, cap))
    if cap * len(samples) <= 1:
        np.testing.assert_array_equal(found, found[0])
        return
    naive = np.array(samples, np.float64)
    for _ in range(20_000):
        cut = np.minimum(naive, cap * naive.sum())
        if np.allclose(cut, naive, rtol=1e-13, atol=0):
            break
        naive = cut
    if cap * len(samples) > 1.001:  # closer to 1 the naive loop converges too slowly
        np.testing.assert_allclose(found / found.sum(), naive / naive.sum(), rtol=1e-5)
    assert found.max() <= cap * found.sum() * (1 + 1e-9)
    assert (found <= np.array(samples)).all()
    below = found < found.max()
    np.testing.assert_array_equal(found[below], np.array(samples)[below])


def test_a_device_that_claims_ten_million_samples_is_capped(tmp_path: Path) -> None:
    """Test fault 12 of docs/faults.md."""
    models = np.concatenate([np.zeros((9, SIZE)), np.ones((1, SIZE))])
    samples = [100] * 9 + [10_000_000]
    assert rounds(tmp_path, robust_settings()).next(models, samples).min() > 0.999
    played = rounds(tmp_path / "capped", robust_settings(weight_cap=2.0))
    np.testing.assert_allclose(played.next(models, samples), 0.2, rtol=1e-6)
    assert played.incidents == (), "a large honest device has done nothing"


@pytest.mark.parametrize(("arrived", "weight"), [(2, 0.3), (3, 0.3), (4, 0.3), (5, 0.3)])
def test_missing_devices_leave_the_others_no_more_weight(tmp_path: Path, arrived: int, weight: float) -> None:
    """The updates that arrive of a cohort of five weigh 1.5/5 each at most; the initial model has the rest."""
    models = np.full((arrived, SIZE), START)
    models[-1] = START + 7.0
    played = rounds(tmp_path, robust_settings(weight_cap=1.5))
    played.cohort = 5
    found = played.next(models, [100] * (arrived - 1) + [10_000_000])
    np.testing.assert_allclose(found - START, 7.0 * weight, rtol=1e-5)


@pytest.mark.parametrize("reducer", ["mean", "geometric_median"])
def test_one_update_of_five_moves_the_model_by_its_share(tmp_path: Path, reducer: str) -> None:
    played = rounds(tmp_path, robust_settings(reducer, weight_cap=1.5), slice_elements=50)
    played.cohort = 5
    np.testing.assert_allclose(played.next(np.full((1, SIZE), START + 10.0), [1]) - START, 3.0, rtol=1e-5)


def test_an_absent_device_does_not_slow_an_honest_fleet_within_the_cap(tmp_path: Path) -> None:
    played = rounds(tmp_path, robust_settings(weight_cap=1.5))
    played.cohort = 5
    np.testing.assert_allclose(played.next(np.full((4, SIZE), START + 1.0), [1, 2, 3, 4]) - START, 1.0, rtol=1e-5)
