"""FedYogi: the second moment grows and shrinks by the squared change alone. Reddi et al., ICLR 2021, algorithm 2."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from moonfed.server_rules.adaptive import AdaptiveRule
from moonfed.server_rules.server_rule import Float64Array


@dataclass(frozen=True, slots=True, kw_only=True)
class FedYogi(AdaptiveRule):
    """v ← v − (1 − β2)·Δ²·sign(v − Δ²)."""

    name: ClassVar[str] = "fedyogi"

    def second_moment(self, v: Float64Array, square: Float64Array) -> Float64Array:
        """Return the next v from the last one and Δ²."""
        return v - (1 - self.beta2) * square * np.sign(v - square)
