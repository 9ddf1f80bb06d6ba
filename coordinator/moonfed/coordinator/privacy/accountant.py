"""The privacy that releases of the Poisson-subsampled Gaussian mechanism cost, for adding or removing one device.

A release sums the contributions of devices that are drawn independently with probability q, each of L2 norm at most C,
and adds normal noise of standard deviation z·C. Its Rényi divergence of order α, by Mironov, Talwar and Zhang 2019
(arXiv:1908.10530, section 3), is log(A)/(α − 1), where A = E[(1 − q + q·exp((2x − 1)/2z²))^α] over x ~ N(0, z²).
Divergences of releases add up, and are converted to epsilon by Canonne, Kamath and Steinke 2020 (arXiv:2004.00010,
proposition 12). The orders are the default ones of dp_accounting 0.6.0. It agrees at whole orders, and is slightly
above at others, where it adds the absolute values of an alternating series.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from moonfed.errors import InvalidInput
from moonfed.server_rules.server_rule import Float64Array

ORDERS = (*(tenths / 10 for tenths in range(11, 110)), *map(float, range(11, 64)), 128.0, 256.0, 512.0, 1024.0)
SCALE = 1_000_000  # a calibrated noise multiplier is a whole number of its parts
LEAST_NOISE, MOST_NOISE = 0.05, 1e6
ROUNDING = 1e-14  # more than that of log(A) near 0, so that a divergence is never too small
_LOG_FACTORIALS = np.array([math.lgamma(number + 1) for number in range(int(ORDERS[-1]) + 1)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Releases:
    """Rounds that each release one sum of the Poisson-subsampled Gaussian mechanism."""

    sampling_rate: float  # q, in (0, 1]
    noise_multiplier: float  # z, above 0
    rounds: int = 1


def epsilon(releases: Iterable[Releases], delta: float) -> float:
    """Return the epsilon of all releases together."""
    total = np.zeros(len(ORDERS))
    for each in releases:
        total += each.rounds * np.array(_divergences(each.sampling_rate, each.noise_multiplier))
    return least_epsilon(ORDERS, total.tolist(), delta)


def noise_multiplier(sampling_rate: float, rounds: int, epsilon: float, delta: float) -> float:
    """Return the smallest noise multiplier with which the rounds cost epsilon at most: at least 0.05, six decimals.

    Raises InvalidInput if not even a million suffices.
    """

    def suffices(multiplier: int) -> bool:
        divergences = [rounds * each for each in _divergences(sampling_rate, multiplier / SCALE)]
        return least_epsilon(ORDERS, divergences, delta) <= epsilon

    low, high = round(LEAST_NOISE * SCALE) - 1, SCALE  # too little, or unknown to suffice; enough
    while not suffices(high):
        low, high = high, 2 * high
        if high > MOST_NOISE * SCALE:
            raise InvalidInput(
                field="epsilon", value=epsilon, rest=f" with delta {delta:g}, which no noise reaches; raise one of them"
            )
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if suffices(middle) else (middle, high)
    return high / SCALE


def rounds_within(sampling_rate: float, noise_multiplier: float, epsilon: float, delta: float, *, at_most: int) -> int:
    """Return the number of rounds, up to `at_most`, that together cost at most epsilon; 0 if one costs more."""
    once, low, high = _divergences(sampling_rate, noise_multiplier), 0, at_most
    while low < high:
        middle = (low + high + 1) // 2
        affordable = least_epsilon(ORDERS, [middle * each for each in once], delta) <= epsilon
        low, high = (middle, high) if affordable else (low, middle - 1)
    return low


def least_epsilon(orders: Sequence[float], divergences: Sequence[float], delta: float) -> float:
    """Return the smallest epsilon that the Rényi divergences of these orders guarantee together with delta."""
    if any(delta**2 + math.expm1(-divergence) > 0 for divergence in divergences):
        return 0.0  # δ² ≥ 1 − exp(−KL), and no divergence of an order above 1 is less than KL
    bounds = (
        divergence + math.log1p(-1 / order) - math.log(delta * order) / (order - 1)
        for order, divergence in zip(orders, divergences, strict=True)
    )
    return max(0.0, min(bounds))


def divergence(sampling_rate: float, noise_multiplier: float, order: float) -> float:
    """Return the Rényi divergence of one release, of an order above 1."""
    if sampling_rate == 1.0:
        return order / (2 * noise_multiplier**2)
    log_moment = _whole_log_moment if order.is_integer() else _log_moment
    return log_moment(sampling_rate, noise_multiplier, order) / (order - 1)


@lru_cache(maxsize=256)
def _divergences(sampling_rate: float, noise_multiplier: float) -> tuple[float, ...]:
    return tuple(divergence(sampling_rate, noise_multiplier, order) for order in ORDERS)


def _whole_log_moment(q: float, z: float, order: float) -> float:
    """Compute log(A) of a whole order: A − 1 = Σ_{k ≥ 2} binomial(α, k)·q^k·(1 − q)^(α − k)·(exp((k² − k)/2z²) − 1)."""
    k = np.arange(2.0, order + 1)
    of_order, of_k, of_rest = (_LOG_FACTORIALS[index] for index in (int(order), k.astype(int), (order - k).astype(int)))
    gain = (k * k - k) / (2 * z * z)
    terms = of_order - of_k - of_rest + k * math.log(q) + (order - k) * math.log1p(-q) + gain
    return float(np.logaddexp(0.0, _log_sum(terms + np.log(-np.expm1(-gain)))))


def _log_moment(q: float, z: float, order: float) -> float:
    """Compute log(A) by the trapezoidal rule, whose error falls exponentially with the step for analytic functions.

    The integrand is Gaussian about 0 and about the order, and singular at a distance of π·z² from the real line.
    """
    step = min(z / 2, z * z)
    x = step * np.arange(math.floor(-12 * z / step), math.ceil((order + 12 * z) / step) + 1)
    ratio = np.logaddexp(math.log1p(-q), math.log(q) + (2 * x - 1) / (2 * z * z))
    return _log_sum(order * ratio - x * x / (2 * z * z)) + math.log(step / (z * math.sqrt(2 * math.pi))) + ROUNDING


def _log_sum(logarithms: Float64Array) -> float:
    largest = float(logarithms.max())
    return largest + math.log(float(np.exp(logarithms - largest).sum()))
