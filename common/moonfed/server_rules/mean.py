"""FedAvg's server: the devices' weighted mean. McMahan et al., AISTATS 2017, algorithm 1.

w ← Σ p_i·w_i
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from moonfed.server_rules.server_rule import Float64Array, Memory, ServerRule


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanRule(ServerRule):
    """w ← Σ p_i·w_i. McMahan et al., AISTATS 2017, algorithm 1."""

    name: ClassVar[str] = "mean"

    def step(self, w: Float64Array, mean: Float64Array, memory: Memory) -> tuple[Float64Array, Memory]:
        """Return the mean."""
        return mean, {}
