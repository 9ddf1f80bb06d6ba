"""The weight cap, compared with a naive loop."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from hypothesis import given, strategies

from moonfed.coordinator.aggregation.robust.weight_cap import cap_weights
from tests.support.aggregation_rounds import SIZE, robust_settings
from tests.support.robust_rounds import rounds


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
    played = rounds(tmp_path / "capped", robust_settings(weight_cap=0.2))
    np.testing.assert_allclose(played.next(models, samples), 0.2, rtol=1e-6)
    assert played.incidents == (), "a large honest device has done nothing"
    few = rounds(tmp_path / "few", robust_settings(weight_cap=0.2)).next(models[-3:], samples[-3:])
    np.testing.assert_allclose(few, 1 / 3, rtol=1e-6)
