"""The common part of FedAdam, FedYogi and FedAdagrad: adaptive server optimisers. Reddi et al., ICLR 2021, algorithm 2.

    m ← β1·m + (1 − β1)·Δ
    v ← by the rule
    w ← w + η·m/(√v + τ)

Before the first round m is 0 and v is τ².
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from moonfed.server_rules.server_rule import Float64Array, Memory, ServerRule, require_number

FIRST_MOMENT, SECOND_MOMENT = "first_moment", "second_moment"


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveRule(ServerRule):
    """The settings of adaptive rules: η, β1, β2 and τ. A rule defines how its second moment moves."""

    server_learning_rate: float = 0.1
    beta1: float = 0.9
    beta2: float = 0.99
    adaptivity: float = 1e-3  # τ; v starts at τ²

    def __post_init__(self) -> None:
        ServerRule.__post_init__(self)
        require_number("server_learning_rate", self.server_learning_rate, 0.0, above=True)
        require_number("beta1", self.beta1, 0.0, below=1.0)
        require_number("beta2", self.beta2, 0.0, below=1.0)
        require_number("adaptivity", self.adaptivity, 0.0, above=True)

    @property
    def initial_memory(self) -> Mapping[str, float]:
        """m and v."""
        return {FIRST_MOMENT: 0.0, SECOND_MOMENT: self.adaptivity**2}

    def step(self, w: Float64Array, mean: Float64Array, memory: Memory) -> tuple[Float64Array, Memory]:
        """Return the next parameters and moments."""
        delta = mean - w
        m = self.beta1 * memory[FIRST_MOMENT] + (1 - self.beta1) * delta
        v = self.second_moment(memory[SECOND_MOMENT], delta**2)
        return w + self.server_learning_rate * m / (np.sqrt(v) + self.adaptivity), {FIRST_MOMENT: m, SECOND_MOMENT: v}

    @abstractmethod
    def second_moment(self, v: Float64Array, square: Float64Array) -> Float64Array:
        """Return the next v from the last one and Δ²."""
