"""The arithmetic of a private release: scales, grid, noise multipliers, and the clip that follows the median."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from moonfed.coordinator.privacy.mechanism import require_sigma_b
from moonfed.errors import InvalidInput
from moonfed.server_rules.server_rule import Float64Array
from tests.support.private_rounds import private_round


@pytest.mark.parametrize(
    ("z", "sigma_b", "expected"),
    [
        (1.2, 6.0, 1.206045),
        (1.0, 2.5, 1.020621),
        (0.8, 5.0, 0.802572),
        (4.0, 4.0, 4.618802),
        (8.0, 5.0, 13.333333),
        (1.2, 0.0, 1.2),
    ],
)
def test_the_count_takes_its_part_of_the_noise_multiplier(z: float, sigma_b: float, expected: float) -> None:
    private = private_round(noise_multiplier=z, sigma_b=sigma_b)
    assert private.update_noise_multiplier == pytest.approx(expected, abs=5e-7)


@pytest.mark.parametrize(("z", "sigma_b"), [(4.0, 1.0), (4.0, 2.0)])
def test_a_count_that_costs_the_whole_release_is_refused(z: float, sigma_b: float) -> None:
    with pytest.raises(InvalidInput) as refusal:
        require_sigma_b(z, sigma_b)
    assert (refusal.value.field, refusal.value.value) == ("sigma_b", sigma_b)
    assert str(refusal.value) == f"sigma_b is {sigma_b}; it must exceed half the noise multiplier, 2"
    require_sigma_b(z, 2.0001)


def test_only_longer_changes_are_scaled() -> None:
    scales = private_round(clip=2.0).scales(np.array([0.0, 1.0, 2.0, 4.0, 1e300]))
    np.testing.assert_allclose(scales, [1, 1, 1, 0.5, 2e-300])


def test_the_grid_rounds_towards_zero() -> None:
    private, step = private_round(clip=0.5), 0.5 / 2**24
    steps = private.on_grid(np.array([3.9, -3.9, 0.9, -0.9, 7.0]) * step, 1.0)
    assert steps.dtype == np.int64
    assert steps.tolist() == [3, -3, 0, 0, 7]
    np.testing.assert_allclose(private.mean(steps), np.array([3, -3, 0, 0, 7]) * step / 10)


@given(arrays.arrays(np.float64, 20, elements=st.floats(-1e30, 1e30)), st.floats(1e-3, 1e3))
def test_no_change_is_longer_than_the_clip(changes: Float64Array, clip: float) -> None:
    private, norm = private_round(clip=clip), float(np.linalg.norm(changes))
    steps = private.on_grid(changes.copy(), float(private.scales(np.array([norm]))[0]))
    length = float(np.linalg.norm(private.mean(steps))) * private.expected
    assert length <= min(clip, norm) * (1 + 1e-9)
    assert length >= min(clip, norm) * (1 - 1e-9) - np.sqrt(20) * clip / 2**24


def test_noise_is_rounded_to_the_grid() -> None:
    private = private_round(noise_multiplier=1.2, clip=3.0)
    steps = private.noise_on_grid(np.array([1.0, -2.5, 0.0]))
    np.testing.assert_array_equal(steps, np.round([1.2 * 2**24, -3.0 * 2**24, 0]))
    np.testing.assert_allclose(private.mean(steps) * private.expected, [3.6, -9.0, 0.0], rtol=1e-6)


def test_a_fixed_clip_stays() -> None:
    assert private_round(clip=0.7).next_clip(np.array([0.1, 0.2]), 3.0) == 0.7


@pytest.mark.parametrize(
    ("norms", "normal", "share"),
    [
        ([1.0] * 10, 0.0, 1.0),  # at the clip is within it
        ([2.0] * 10, 0.0, 0.0),
        ([0.5] * 5 + [2.0] * 5, 0.0, 0.5),
        ([0.5] * 5 + [2.0] * 5, -1.5, 0.2),  # noise of 2 · -1.5 devices
        ([0.5] * 4, 0.0, 0.7),  # six are missing, and say nothing
        ([], 0.0, 0.5),
        ([], 1.0, 0.7),
    ],
)
def test_the_clip_follows_the_median_of_the_norms(norms: list[float], normal: float, share: float) -> None:
    found = private_round(sigma_b=2.0).next_clip(np.array(norms), normal)
    assert found == pytest.approx(math.exp(-0.2 * (share - 0.5)))


def test_one_device_moves_the_noiseless_share_by_at_most_half_a_device() -> None:
    """This is what the factor 2 of (2σ_b)⁻² stands for."""
    private = private_round(sigma_b=2.0)
    for norm in (0.5, 2.0):
        others = np.array([0.5, 2.0, 0.7])
        with_it, without = (private.next_clip(each, 0.0) for each in (np.append(others, norm), others))
        assert abs(math.log(with_it / without)) == pytest.approx(0.2 * 0.5 / private.expected)
