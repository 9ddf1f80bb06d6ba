"""Epsilon against dp_accounting 0.6.0 and integrals of 40 digits, its monotony, and what is calibrated from it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moonfed.coordinator.privacy.accountant import (
    Releases,
    divergence,
    epsilon,
    least_epsilon,
    noise_multiplier,
    rounds_within,
)
from moonfed.errors import InvalidInput
from tests.support.refusals import refused

WHOLE_ORDERS = [float(order) for order in (*range(2, 65), 80, 96, 128, 192, 256, 512)]
# q, z, rounds, delta; dp_accounting's RdpAccountant with its default orders, and with these; its PLDAccountant.
ORACLE = {
    "A": (120 / 3383, 1.2, 100, 1e-5, 1.9861145999, 1.9888773066, 1.70747132),
    "B": (50 / 3383, 1.0, 100, 1e-5, 1.5030625646, 1.5072692867, 1.06155160),
    "C": (0.01, 0.8, 500, 1e-6, 3.5302335360, 3.5646305523, 2.92514628),
    "D": (0.001, 0.6, 2000, 1e-8, 4.5252223328, 4.6973589883, 3.71388059),
    "E": (0.2, 4.0, 50, 1e-3, 1.0969503378, 1.0971671813, 0.94156841),
    "F": (1.0, 8.0, 30, 1e-3, 2.2424570475, 2.2471276052, 1.97454930),
    "G": (0.01, 1.0, 1500, 1e-7, 3.2023811313, 3.2124564844, 2.88649203),
}
# q, z, order; log(A)/(order - 1) by mpmath's quadrature with 40 digits.
INTEGRALS = [
    (120 / 3383, 1.2, 7.8, 0.007323120037372596),
    (50 / 3383, 1.0, 7.9, 0.002694087811083068),
    (0.01, 0.8, 5.2, 0.001693837495676265),
    (0.001, 0.6, 4.8, 0.000162035518050083),
    (0.2, 4.0, 8.9, 0.01236909232864956),
    (0.4342, 6.6, 2.9, 0.006366952114225141),
    (0.3, 0.3, 1.1, 1.624723616901889),
    (1e-4, 0.2, 1.3, 0.0024148686522492402),
    (0.3, 0.1, 2.5, 122.99337865945676),
    (1e-6, 0.5, 3.5, 9.394145696653009e-11),
]
RATES = st.floats(1e-6, 1.0)
MULTIPLIERS = st.floats(0.3, 100.0)
ROUNDS = st.integers(1, 10_000)
DELTAS = st.floats(1e-12, 1e-2)


def spent(q: float, z: float, rounds: int, delta: float) -> float:
    return epsilon([Releases(sampling_rate=q, noise_multiplier=z, rounds=rounds)], delta)


@pytest.mark.parametrize("row", ORACLE)
def test_whole_orders_give_the_epsilon_of_dp_accounting(row: str) -> None:
    q, z, rounds, delta, _, expected, _ = ORACLE[row]
    divergences = [rounds * divergence(q, z, order) for order in WHOLE_ORDERS]
    assert least_epsilon(WHOLE_ORDERS, divergences, delta) == pytest.approx(expected, rel=0, abs=1e-9)


@pytest.mark.parametrize("row", ORACLE)
def test_all_orders_give_at_most_dp_accountings_epsilon_which_bounds_fractional_orders_less_closely(row: str) -> None:
    q, z, rounds, delta, default, _, tight = ORACLE[row]
    found = spent(q, z, rounds, delta)
    assert tight < found < default + 1e-9
    assert found == pytest.approx(default, rel=6e-6)


@pytest.mark.parametrize(("q", "z", "order", "expected"), INTEGRALS)
def test_fractional_orders_are_integrals(q: float, z: float, order: float, expected: float) -> None:
    assert divergence(q, z, order) == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_without_sampling_divergence_is_that_of_two_normal_distributions() -> None:
    assert divergence(1.0, 2.0, 3.5) == pytest.approx(3.5 / 8)
    assert divergence(1 - 1e-12, 2.0, 3.5) == pytest.approx(3.5 / 8)
    assert divergence(1 - 1e-12, 2.0, 64.0) == pytest.approx(8.0)


def test_epsilon_is_above_the_exact_one_of_a_gaussian() -> None:
    """Balle and Wang 2018 (arXiv:1805.06530), theorem 8."""
    assert 4.3771780957 < spent(1.0, 1.0, 1, 1e-5) < 4.3771780957 + 1


def test_nothing_released_costs_nothing() -> None:
    assert epsilon([], 1e-5) == 0.0


def test_releases_add_up_in_any_parts_and_order() -> None:
    first = Releases(sampling_rate=0.02, noise_multiplier=1.1, rounds=30)
    second = Releases(sampling_rate=0.05, noise_multiplier=0.9)
    parts = [second, *[Releases(sampling_rate=0.02, noise_multiplier=1.1, rounds=10)] * 3]
    assert epsilon(parts, 1e-5) == pytest.approx(epsilon([first, second], 1e-5), rel=1e-12)
    assert epsilon(parts, 1e-5) > max(epsilon([first], 1e-5), epsilon([second], 1e-5))


@settings(deadline=None, max_examples=40)
@given(RATES, MULTIPLIERS, ROUNDS, DELTAS, st.floats(1.0, 10.0))
def test_epsilon_rises_with_the_rate_and_the_rounds_and_falls_with_noise_and_delta(
    q: float, z: float, rounds: int, delta: float, factor: float
) -> None:
    found = spent(q, z, rounds, delta)
    assert found <= spent(min(1.0, q * factor), z, rounds, delta) * (1 + 1e-9)
    assert found <= spent(q, z, math.ceil(rounds * factor), delta) * (1 + 1e-9)
    assert found >= spent(q, z * factor, rounds, delta) * (1 - 1e-9)
    assert found >= spent(q, z, rounds, min(0.5, delta * factor)) * (1 - 1e-9)


@pytest.mark.parametrize("z", [300.0, 500.0, 1000.0, 2000.0, 5000.0])
def test_rounding_hides_no_cost(z: float) -> None:
    """A billion rounds cost something, even if log(A) of one round is less than the spacing of numbers about 1."""
    whole = [10**9 * divergence(1e-4, z, order) for order in WHOLE_ORDERS]
    assert 0.01 < spent(1e-4, z, 10**9, 1e-9) <= least_epsilon(WHOLE_ORDERS, whole, 1e-9)


@pytest.mark.parametrize("row", ORACLE)
def test_calibration_finds_the_multiplier_and_the_rounds_of_an_epsilon(row: str) -> None:
    q, z, rounds, delta, *_ = ORACLE[row]
    found = spent(q, z, rounds, delta)
    assert noise_multiplier(q, rounds, found, delta) == z
    assert rounds_within(q, z, found, delta, at_most=10 * rounds) == rounds
    assert rounds_within(q, z, found, delta, at_most=rounds - 1) == rounds - 1


@settings(deadline=None, max_examples=8)
@given(RATES, ROUNDS, st.floats(0.5, 20.0), DELTAS)
def test_a_calibrated_multiplier_is_the_smallest_of_six_decimals(
    q: float, rounds: int, target: float, delta: float
) -> None:
    z = noise_multiplier(q, rounds, target, delta)
    assert z == round(z, 6)
    assert spent(q, z, rounds, delta) <= target
    assert z == 0.05 or spent(q, z - 1e-6, rounds, delta) > target


def test_an_epsilon_that_no_noise_reaches_is_refused() -> None:
    with refused(InvalidInput, "epsilon", 1e-6):
        noise_multiplier(0.5, 1000, 1e-6, 1e-9)


def test_no_round_is_affordable_with_too_little_noise() -> None:
    assert rounds_within(1.0, 0.5, 1.0, 1e-5, at_most=10) == 0
