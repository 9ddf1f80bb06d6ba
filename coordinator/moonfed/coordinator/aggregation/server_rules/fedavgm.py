"""FedAvgM: the server keeps a momentum of the fleet's mean change. Hsu, Qi, Brown 2019, section 3.

    v ← β·v + Δ             (damped: v ← β·v + (1 − β)·Δ, as MOON's authors' code does)
    w ← w + v

v is 0 before the first round.
"""

from __future__ import annotations

from moonfed.coordinator.aggregation.model_files import Memory, Slice
from moonfed.server_rules import FedAvgM

MOMENTUM = "momentum"


def step(rule: FedAvgM, w: Slice, delta: Slice, memory: Memory) -> tuple[Slice, Memory]:
    """The next parameters and momentum from the mean change Δ."""
    beta = rule.server_momentum
    v = beta * memory[MOMENTUM] + ((1 - beta) * delta if rule.damped else delta)
    return w + v, {MOMENTUM: v}
