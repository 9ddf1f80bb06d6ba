"""FedProx: a proximal term keeps local training near the round's global model.

    h(w_i; w) = CE + mu/2 · ‖w_i − w‖²

over the trained parameters. A device may take fewer steps than others and still counts. How well a device solved its
problem is its inexactness

    gamma = ‖∇h(w_i; w)‖ / ‖∇h(w; w)‖

with h over all the device's samples, in eval mode and without augmentation: 0 is a solution, 1 no progress. It takes
two passes of gradients, so it is measured only if `measure_inexactness` is set.

The term's gradient mu·(w_i − w) is added to the loss's, because autograd would take longer to compute it. A
parameter that the loss does not depend on never leaves w, so it stays without a gradient.

Source: Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith, Federated Optimization in Heterogeneous Networks (MLSys 2020),
section 3 and algorithm 2; mu 0.01 is what Li, He, Song (CVPR 2021) found best for CIFAR-10. Inexactness: Shi,
Performance Comparison and Analysis Between MOON and FedProx in Image Classification, definitions 1 and 2.
Legend: B samples, C classes, D width of a representation.
"""

import math
from dataclasses import dataclass

import torch

from moonfed.errors import InvalidInput
from moonfed.export.methods.method import Method, Objective
from moonfed.export.script_utils import difference, squared_norm
from moonfed.validate import require_at_least, require_whole


class Proximal(Objective):
    """The task's loss and the proximal term."""

    anchor: list[torch.Tensor]  # w
    sums_before: list[torch.Tensor]  # over the samples, of their loss's gradients at w
    sums_after: list[torch.Tensor]  # and at w_i

    def __init__(self) -> None:
        super().__init__()
        self.anchor = []
        self.sums_before = []
        self.sums_after = []
        self.samples = torch.empty(0)  # that the second survey has seen, a scalar

    def begin(
        self,
        parameters: list[torch.Tensor],
        received: dict[str, list[torch.Tensor]],
        hyperparameters: dict[str, float],
    ) -> None:
        """Store the global model."""
        self.anchor = [parameter.clone() for parameter in parameters]
        measured = parameters if hyperparameters["measure_inexactness"] > 0 else parameters[:0]
        self.sums_before = [torch.zeros_like(parameter) for parameter in measured]
        self.sums_after = [torch.zeros_like(parameter) for parameter in measured]
        self.samples = torch.zeros([], device=parameters[0].device)

    def regularise(
        self,
        loss: torch.Tensor,
        gradients: list[torch.Tensor | None],
        parameters: list[torch.Tensor],
        hyperparameters: dict[str, float],
    ) -> tuple[torch.Tensor, list[torch.Tensor | None]]:
        """Add mu/2 · ‖w_i − w‖² to the loss and mu · (w_i − w) to the gradients."""
        mu = hyperparameters["mu"]
        aways = difference(parameters, self.anchor)
        found: list[torch.Tensor | None] = []
        for gradient, away in zip(gradients, aways):  # noqa: B905 - not in scripts
            found.append(None if gradient is None else gradient.add(away, alpha=mu))
        return loss + mu / 2 * squared_norm(aways), found

    def wants_survey(self, trained: bool, hyperparameters: dict[str, float]) -> bool:
        """Request surveys before and after the steps if inexactness is measured."""
        return hyperparameters["measure_inexactness"] > 0

    def survey(
        self,
        loss: torch.Tensor,
        outputs: torch.Tensor,
        z_BD: torch.Tensor,
        targets: torch.Tensor,
        parameters: list[torch.Tensor],
        steps: int,
    ) -> None:
        """Accumulate the batch's gradients."""
        add_gradients(loss, parameters, self.sums_before if steps == 0 else self.sums_after)
        if steps > 0:
            self.samples += targets.size(0)

    def metrics(self, parameters: list[torch.Tensor], hyperparameters: dict[str, float]) -> dict[str, torch.Tensor]:
        """Return `inexactness`, if both surveys were made and w was not a solution yet."""
        found: dict[str, torch.Tensor] = {}
        if hyperparameters["measure_inexactness"] > 0:
            aways = difference(parameters, self.anchor)
            weight = hyperparameters["mu"] * self.samples  # N · ∇h on both sides of the fraction
            after = squared_norm([total + weight * away for total, away in zip(self.sums_after, aways)])  # noqa: B905
            before = squared_norm(self.sums_before)
            measured = (self.samples > 0) & (before > 0)
            found["inexactness"] = torch.where(measured, torch.sqrt(after / before), math.inf)
        return found


def add_gradients(loss: torch.Tensor, parameters: list[torch.Tensor], sums: list[torch.Tensor]) -> None:
    """Add a loss's gradients to their sums; a parameter that it does not depend on has none."""
    gradients = torch.autograd.grad([loss], parameters, allow_unused=True)
    for total, gradient in zip(sums, gradients):  # noqa: B905 - not in scripts
        if gradient is not None:
            total += gradient


@dataclass(frozen=True, slots=True, kw_only=True)
class FedProx(Method):
    """FedProx' hyperparameters: mu weighs the proximal term; measure_inexactness is 1 to measure gamma, else 0."""

    mu: float = 0.01
    measure_inexactness: int = 0

    def __post_init__(self) -> None:
        require_at_least("mu", self.mu, 0.0)
        require_whole("measure_inexactness", self.measure_inexactness, 0)
        if self.measure_inexactness > 1:
            raise InvalidInput(field="measure_inexactness", value=self.measure_inexactness, allowed="0 or 1")

    def hyperparameters(self) -> dict[str, float]:
        """Return both settings as numbers."""
        return {"mu": self.mu, "measure_inexactness": float(self.measure_inexactness)}

    def objective(self) -> Objective:
        """Return the task's loss and the proximal term."""
        return Proximal()
