"""Ditto: every device trains the global model as in FedAvg, and besides it a model of its own.

    v_i ← v_i − lr · (∇F_i(v_i) + mu · (v_i − w))

w is the round's global model, mu the paper's lambda: with 0 the personal model is trained alone, and a large one keeps
it near the global model. Both models see the same batches. v_i never leaves the device, which evaluates and predicts
with it; it begins as the run's initial model.

Source: Li, Hu, Beirami, Smith, Ditto: Fair and Robust Federated Learning Through Personalization (ICML 2021), algorithm
1. There, a device takes its personal steps after the global ones, from the same w.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from moonfed.bundle.manifest import PERSONAL, PERSONAL_MODEL, Roles
from moonfed.export.methods.method import ExchangeShapes, Method, Objective
from moonfed.validate import require_at_least


@dataclass(frozen=True, slots=True, kw_only=True)
class Ditto(Method):
    """Ditto's hyperparameter: mu, how much the personal model is drawn to the global one."""

    trains_personal_model: ClassVar[bool] = True

    mu: float = 1.0

    def __post_init__(self) -> None:
        require_at_least("mu", self.mu, 0.0)

    def hyperparameters(self) -> dict[str, float]:
        """Return mu."""
        return {"mu": self.mu}

    def device_state(self, shapes: ExchangeShapes) -> Roles:
        """v_i."""
        return {PERSONAL: tuple(replace(spec, name=PERSONAL_MODEL + spec.name) for spec in shapes.tensors)}

    def objective(self) -> Objective:
        """Return the task's loss alone; the plan adds the personal model's."""
        return Objective()
