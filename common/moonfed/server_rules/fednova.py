"""FedNova: changes are normalised by a device's effective steps. Wang et al., NeurIPS 2020, section 4.

    d_i = (w − w_i) / a_i
    w ← w − (Σ p_i·a_i) · Σ p_i·d_i

a_i, the effective steps of K local steps of SGD with momentum ρ, is the sum of the weights with which the gradients
enter w_i: a_i = [K − ρ(1 − ρ^K)/(1 − ρ)] / (1 − ρ).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from moonfed.server_rules.server_rule import Float64Array, Memory, ServerRule


@dataclass(frozen=True, slots=True, kw_only=True)
class FedNova(ServerRule):
    """w ← w − (Σ p_i·a_i) · Σ p_i·(w − w_i)/a_i, a_i the effective steps of a device's steps under local momentum.

    Wang et al., NeurIPS 2020, section 4.
    """

    name: ClassVar[str] = "fednova"
    counts_steps: ClassVar[bool] = True

    def step(self, w: Float64Array, mean: Float64Array, memory: Memory) -> tuple[Float64Array, Memory]:
        """Return w + Σ q_i·(w_i − w), which is the mean by `step_weights`."""
        return mean, {}

    def step_weights(self, p: Sequence[float], steps: Sequence[int], momentum: float) -> list[float]:
        """Return (Σ p_j·a_j) · p_i/a_i for each device."""
        a = [effective_steps(count, momentum) for count in steps]
        mean_steps = sum(p_i * a_i for p_i, a_i in zip(p, a, strict=True))
        return [mean_steps * p_i / a_i for p_i, a_i in zip(p, a, strict=True)]


def effective_steps(steps: int, momentum: float) -> float:
    """Return a_i; the steps themselves without momentum."""
    rho = momentum
    return (steps - rho * (1 - rho**steps) / (1 - rho)) / (1 - rho)
