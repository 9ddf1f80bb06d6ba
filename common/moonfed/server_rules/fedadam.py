"""FedAdam: the second moment is a moving average of the squared changes. Reddi et al., ICLR 2021, algorithm 2."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from moonfed.server_rules.adaptive import AdaptiveRule
from moonfed.server_rules.server_rule import Float64Array


@dataclass(frozen=True, slots=True, kw_only=True)
class FedAdam(AdaptiveRule):
    """v ← β2·v + (1 − β2)·Δ²."""

    name: ClassVar[str] = "fedadam"

    def second_moment(self, v: Float64Array, square: Float64Array) -> Float64Array:
        """Return the next v from the last one and Δ²."""
        return self.beta2 * v + (1 - self.beta2) * square
