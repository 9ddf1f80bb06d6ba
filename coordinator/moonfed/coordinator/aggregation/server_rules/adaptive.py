"""FedAdam, FedYogi and FedAdagrad: adaptive optimisers on the server. Reddi et al., ICLR 2021, algorithm 2.

    m ← β1·m + (1 − β1)·Δ
    v ← β2·v + (1 − β2)·Δ²                   FedAdam
    v ← v − (1 − β2)·Δ²·sign(v − Δ²)         FedYogi
    v ← v + Δ²                               FedAdagrad
    w ← w + η·m/(√v + τ)

Before the first round m is 0 and v is τ².
"""

from __future__ import annotations

import numpy as np

from moonfed.coordinator.aggregation.model_files import Memory, Slice
from moonfed.server_rules import AdaptiveRule, FedAdagrad, FedYogi

FIRST_MOMENT, SECOND_MOMENT = "first_moment", "second_moment"


def step(rule: AdaptiveRule, w: Slice, delta: Slice, memory: Memory) -> tuple[Slice, Memory]:
    """The next parameters and moments from the mean change Δ."""
    m = rule.beta1 * memory[FIRST_MOMENT] + (1 - rule.beta1) * delta
    v = _second_moment(rule, memory[SECOND_MOMENT], delta**2)
    return w + rule.server_learning_rate * m / (np.sqrt(v) + rule.adaptivity), {FIRST_MOMENT: m, SECOND_MOMENT: v}


def _second_moment(rule: AdaptiveRule, v: Slice, square: Slice) -> Slice:
    if isinstance(rule, FedAdagrad):
        return v + square
    if isinstance(rule, FedYogi):
        return v - (1 - rule.beta2) * square * np.sign(v - square)
    return rule.beta2 * v + (1 - rule.beta2) * square
