"""SCAFFOLD: control variates correct every local step for the drift of a device's own data.

    after each step of the optimiser:  w_i ← w_i − lr · (c − c_i)
    after K of them:                   c_i⁺ = c_i − c + (w − w_i) / (K · lr)

c is the coordinator's control variate, c_i the device's; both begin as zeros. The device sends c_i⁺ − c_i and keeps
c_i⁺ (option II of the paper). The correction is applied outside momentum, as in public code (NIID-Bench: Li, Diao,
Chen, He, ICDE 2022): w − w_i is what momentum made of the gradients already, and inside momentum it would be amplified
again and training diverge. Variates have the trained parameters' shapes; BatchNorm's statistics have none.

Source: Karimireddy, Kale, Mohri, Reddi, Stich, Suresh, SCAFFOLD: Stochastic Controlled Averaging for Federated Learning
(ICML 2020), algorithm 1.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch

from moonfed.bundle.manifest import DEVICE_VARIATE, VARIATE, VARIATE_CHANGE, Roles
from moonfed.export.methods.method import ExchangeShapes, Method, Objective
from moonfed.export.script_utils import difference


class Controlled(Objective):
    """The task's loss, with every step corrected."""

    anchor: list[torch.Tensor]  # w
    own: list[torch.Tensor]  # c_i
    correction: list[torch.Tensor]  # c − c_i

    def __init__(self) -> None:
        super().__init__()
        self.anchor = []
        self.own = []
        self.correction = []

    def begin(
        self,
        parameters: list[torch.Tensor],
        received: dict[str, list[torch.Tensor]],
        hyperparameters: dict[str, float],
    ) -> None:
        """Store the global model and the variates."""
        self.anchor = [parameter.clone() for parameter in parameters]
        self.own = variate(received, "device_variate", parameters)
        self.correction = difference(variate(received, "variate", parameters), self.own)

    def after_step(
        self, parameters: list[torch.Tensor], hyperparameters: dict[str, float], skip: torch.Tensor | None
    ) -> None:
        """w_i ← w_i − lr · (c − c_i)."""
        correction = self.correction
        if skip is not None:
            correction = torch._foreach_mul(correction, 1.0 - skip)  # type: ignore[assignment]
        torch._foreach_add_(parameters, correction, alpha=-hyperparameters["learning_rate"])

    def results(
        self, parameters: list[torch.Tensor], steps: torch.Tensor, hyperparameters: dict[str, float]
    ) -> dict[str, list[torch.Tensor]]:
        """c_i⁺ − c_i to send and c_i⁺ to keep; without a step c_i stays as it is."""
        work = steps.clamp(min=1.0) * hyperparameters["learning_rate"]
        slopes = [drift / work for drift in difference(self.anchor, parameters)]
        new: list[torch.Tensor] = []
        for own, changed in zip(self.own, difference(slopes, self.correction)):  # noqa: B905 - not in scripts
            new.append(torch.where(steps > 0.0, changed, own))
        return {"variate_change": difference(new, self.own), "device_variate": new}


def variate(received: dict[str, list[torch.Tensor]], role: str, parameters: list[torch.Tensor]) -> list[torch.Tensor]:
    """Return a variate in the parameters' shapes; zeros if none was received."""
    if role not in received:
        return [torch.zeros_like(parameter) for parameter in parameters]
    if len(received[role]) != len(parameters):
        raise ValueError(
            role + " has " + str(len(received[role])) + " tensors; the model trains " + str(len(parameters))
        )
    # In memory as the parameters are: one kernel then adds a whole list to another.
    return [torch.empty_like(like).copy_(tensor) for like, tensor in zip(parameters, received[role])]  # noqa: B905


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaffold(Method):
    """SCAFFOLD has no hyperparameters of its own; its global step size is 1."""

    assumes_sgd: ClassVar[bool] = True  # c_i⁺ is the mean gradient of its steps

    def downlink(self, shapes: ExchangeShapes) -> Roles:
        """c."""
        return {VARIATE: shapes.parameters}

    def uplink(self, shapes: ExchangeShapes) -> Roles:
        """c_i⁺ − c_i."""
        return {VARIATE_CHANGE: shapes.parameters}

    def device_state(self, shapes: ExchangeShapes) -> Roles:
        """c_i."""
        return {DEVICE_VARIATE: shapes.parameters}

    def objective(self) -> Objective:
        """Return the task's loss, with every step corrected."""
        return Controlled()
