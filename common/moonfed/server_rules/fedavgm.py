"""FedAvgM: the server keeps a momentum of the fleet's mean change. Hsu, Qi, Brown 2019, section 3.

    v ← β·v + Δ             (damped: v ← β·v + (1 − β)·Δ, as MOON's authors' code does)
    w ← w + v

v is 0 before the first round.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from moonfed.server_rules.server_rule import Float64Array, Memory, ServerRule, require_number

MOMENTUM = "momentum"


@dataclass(frozen=True, slots=True, kw_only=True)
class FedAvgM(ServerRule):
    """v ← β·v + Δ, or β·v + (1 − β)·Δ if damped (as MOON's authors' code does); w ← w + v.

    Hsu, Qi, Brown 2019, section 3.
    """

    name: ClassVar[str] = "fedavgm"
    server_momentum: float = 0.9
    damped: bool = False

    def __post_init__(self) -> None:
        ServerRule.__post_init__(self)
        require_number("server_momentum", self.server_momentum, 0.0, below=1.0)

    @property
    def initial_memory(self) -> Mapping[str, float]:
        """v."""
        return {MOMENTUM: 0.0}

    def step(self, w: Float64Array, mean: Float64Array, memory: Memory) -> tuple[Float64Array, Memory]:
        """Return the next parameters and momentum."""
        beta, delta = self.server_momentum, mean - w
        v = beta * memory[MOMENTUM] + ((1 - beta) * delta if self.damped else delta)
        return w + v, {MOMENTUM: v}
