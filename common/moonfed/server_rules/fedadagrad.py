"""FedAdagrad: the second moment adds up the squared changes. Reddi et al., ICLR 2021, algorithm 2."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from moonfed.server_rules.adaptive import AdaptiveRule
from moonfed.server_rules.server_rule import Float64Array


@dataclass(frozen=True, slots=True, kw_only=True)
class FedAdagrad(AdaptiveRule):
    """v ← v + Δ²; β2 is unused."""

    name: ClassVar[str] = "fedadagrad"
    beta1: float = 0.0

    def second_moment(self, v: Float64Array, square: Float64Array) -> Float64Array:
        """Return the next v from the last one and Δ²."""
        return v + square
