"""FedSSC: MOON's contrast with a device's own past, and a contrast with class prototypes that the fleet shares.

    loss = CE(F_w(x), y) + mu_moon · l_con + mu_glob(t) · l_glob

l_con is MOON's (`methods.moon`), l_glob the prototypes' (`methods.prototypes`). mu_glob is mu_start until
round decay_start (T_0), then falls linearly to mu_end at round decay_end (T). In the first round there are no
prototypes and thus no l_glob. The coordinator draws `prototype_devices` devices for each class in every round.

Source: Hu, Feng, Yang, Chen, FedSSC: Shared Supervised-Contrastive Federated Learning. The printed formula of the decay
has no t; we read it as linear.
Legend: B samples, C classes, D width of a representation, R references: the global one and the previous ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from moonfed.bundle.manifest import Roles, Schedule
from moonfed.errors import InvalidInput
from moonfed.export.methods.method import ExchangeShapes, Method, Objective
from moonfed.export.methods.moon import MOST_PREVIOUS_MODELS, differences, model_contrast
from moonfed.export.methods.prototypes import ClassMeans, Prototypes, class_means_uplink, prototype_downlink
from moonfed.validate import require_at_least, require_positive, require_whole


class SharedContrastive(Objective):
    """Cross-entropy and both contrastive terms."""

    def __init__(self) -> None:
        super().__init__()
        self.prototypes = Prototypes()
        self.class_means = ClassMeans()

    def begin(
        self,
        parameters: list[torch.Tensor],
        received: dict[str, list[torch.Tensor]],
        hyperparameters: dict[str, float],
    ) -> None:
        """Store the prototypes."""
        self.prototypes.begin(received, parameters[0].device)
        self.class_means.begin(parameters[0].device)

    def reference_count(self, previous: int, hyperparameters: dict[str, float]) -> int:
        """Count MOON's references; none if l_con has no weight."""
        return 0 if previous == 0 or hyperparameters["mu_moon"] == 0.0 else 1 + previous

    def references(self, representations_BRD: torch.Tensor, hyperparameters: dict[str, float]) -> torch.Tensor:
        """Return MOON's references."""
        return differences(representations_BRD, hyperparameters["tau"])

    def contrast(
        self,
        z_BD: torch.Tensor,
        labels_B: torch.Tensor,
        references_BRD: torch.Tensor,
        hyperparameters: dict[str, float],
    ) -> torch.Tensor:
        """mu_moon · l_con + mu_glob · l_glob, as far as there is something to compare with; else 0."""
        tau = hyperparameters["tau"]
        loss = torch.zeros([], device=z_BD.device)
        if references_BRD.numel() > 0:
            loss = loss + hyperparameters["mu_moon"] * model_contrast(z_BD, references_BRD)
        if self.prototypes.any():
            loss = loss + hyperparameters["mu_glob"] * self.prototypes(z_BD, labels_B, tau)
        return loss

    def forward(
        self,
        loss: torch.Tensor,
        outputs: torch.Tensor,
        z_BD: torch.Tensor,
        targets: torch.Tensor,
        references_BRD: torch.Tensor,
        hyperparameters: dict[str, float],
    ) -> torch.Tensor:
        """Return the batch's loss, a scalar."""
        return loss + self.contrast(z_BD, targets, references_BRD, hyperparameters)

    def wants_survey(self, trained: bool, hyperparameters: dict[str, float]) -> bool:
        """Request a survey after the last step, for the class means."""
        return trained

    def survey(
        self,
        loss: torch.Tensor,
        outputs: torch.Tensor,
        z_BD: torch.Tensor,
        targets: torch.Tensor,
        parameters: list[torch.Tensor],
        steps: int,
    ) -> None:
        """Add a batch to the class means."""
        self.class_means.add(z_BD, targets, outputs.size(1))

    def results(
        self, parameters: list[torch.Tensor], steps: torch.Tensor, hyperparameters: dict[str, float]
    ) -> dict[str, list[torch.Tensor]]:
        """Return the class means."""
        return {"class_means": self.class_means.shared(hyperparameters["prototype_minimum"])}


@dataclass(frozen=True, slots=True, kw_only=True)
class PrototypeMethod(Method):
    """The settings of all methods with prototypes."""

    compares_representations: ClassVar[bool] = True
    needs_classes: ClassVar[bool] = True

    tau: float = 0.5  # temperature of all contrastive terms
    mu_start: float = 1.0  # weight of l_glob until round decay_start
    mu_end: float = 0.0001  # and from round decay_end
    decay_start: int = 5
    decay_end: int = 100
    prototype_minimum: int = 10  # samples of a class from which on a device shares the class's mean

    def __post_init__(self) -> None:
        require_positive("tau", self.tau)
        require_at_least("mu_start", self.mu_start, 0.0)
        require_at_least("mu_end", self.mu_end, 0.0)
        require_whole("decay_start", self.decay_start, 1)
        require_whole("decay_end", self.decay_end, 1)
        require_whole("prototype_minimum", self.prototype_minimum, 1)
        if self.decay_end <= self.decay_start:
            raise InvalidInput(
                field="decay_end", value=self.decay_end, allowed=f"above decay_start, {self.decay_start}"
            )

    def hyperparameters(self) -> dict[str, float]:
        """Return mu_glob as in the first round, without l_con."""
        return {
            "tau": self.tau,
            "mu_moon": 0.0,
            "mu_glob": self.mu_start,
            "prototype_minimum": float(self.prototype_minimum),
        }

    def schedules(self) -> dict[str, Schedule]:
        """Return mu_glob's schedule."""
        return {"mu_glob": ((self.decay_start, self.mu_start), (self.decay_end, self.mu_end))}

    def downlink(self, shapes: ExchangeShapes) -> Roles:
        """Return the prototypes' role."""
        return prototype_downlink(shapes)

    def uplink(self, shapes: ExchangeShapes) -> Roles:
        """Return the role of the class means."""
        return class_means_uplink(shapes)

    def objective(self) -> Objective:
        """Cross-entropy and both contrastive terms."""
        return SharedContrastive()


@dataclass(frozen=True, slots=True, kw_only=True)
class FedSsc(PrototypeMethod):
    """FedSSC's further settings: MOON's weight and k, and the number of devices per prototype (0: all)."""

    mu_moon: float = 5.0
    previous_models: int = 1
    prototype_devices: int = 1

    def __post_init__(self) -> None:
        PrototypeMethod.__post_init__(self)
        require_at_least("mu_moon", self.mu_moon, 0.0)
        require_whole("previous_models", self.previous_models, 1, MOST_PREVIOUS_MODELS)
        require_whole("prototype_devices", self.prototype_devices, 0)

    @property
    def frozen_encoders(self) -> int:
        """The number of MOON's frozen encoders; 0 if l_con has no weight."""
        return 1 + self.previous_models if self.mu_moon > 0 else 0

    def hyperparameters(self) -> dict[str, float]:
        """Return the weights of both terms and the settings that they need."""
        return {**PrototypeMethod.hyperparameters(self), "mu_moon": self.mu_moon}
