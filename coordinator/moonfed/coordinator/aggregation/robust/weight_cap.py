"""Weight cap: bounds one device's weight, however many samples it claims."""

from __future__ import annotations

from collections.abc import Sequence


def cap_weights(weights: Sequence[float], cap: float) -> list[float]:
    """Return the weights, none of them above `cap` of their new sum; the others' proportions stay.

    With at most 1/cap devices one must weigh `cap` or more, so all weigh the same. Otherwise the k heaviest weigh
    T = cap·R/(1 − k·cap), R being the sum of the rest: the fixpoint of T = cap·(k·T + R), for the smallest k for which
    none of the rest weighs more than T.
    """
    if cap * len(weights) <= 1:
        return [1.0] * len(weights)
    rest, bound = float(sum(weights)), 0.0
    for k, weight in enumerate(sorted(weights, reverse=True)):
        bound = cap * rest / (1 - k * cap)
        if weight <= bound:
            break
        rest -= weight
    return [min(float(weight), bound) for weight in weights]
