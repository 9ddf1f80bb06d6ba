"""FedNova: changes are normalised by how far a device's steps go. Wang et al., NeurIPS 2020, section 4.

    d_i = (w − w_i) / a_i
    w ← w − (Σ p_i·a_i) · Σ p_i·d_i

a_i, the effective steps of K local steps of SGD with momentum ρ, is the sum of the weights with which the gradients
enter w_i: a_i = [K − ρ(1 − ρ^K)/(1 − ρ)] / (1 − ρ).
"""

from __future__ import annotations

from collections.abc import Sequence

from moonfed.coordinator.aggregation.model_files import Slice


def effective_steps(steps: int, momentum: float) -> float:
    """a_i; the steps themselves without momentum."""
    rho = momentum
    return (steps - rho * (1 - rho**steps) / (1 - rho)) / (1 - rho)


def coefficients(p: Sequence[float], a: Sequence[float]) -> list[float]:
    """What each device's change w_i − w counts in the sum: (Σ p_j·a_j) · p_i/a_i."""
    mean_steps = sum(p_i * a_i for p_i, a_i in zip(p, a, strict=True))
    return [mean_steps * p_i / a_i for p_i, a_i in zip(p, a, strict=True)]


def step(w: Slice, weighted_models: Slice, coefficients: Sequence[float]) -> Slice:
    """The next parameters from Σ q_i·w_i with these coefficients q."""
    return w + (weighted_models - sum(coefficients) * w)
