"""The interface of a learning method: settings, and an objective that TorchScript can compile.

A method is one module of this package and one line of `METHODS`. Its objective is an `Objective`
that overrides the hooks it needs; those of this base do nothing, and cost nothing once TorchScript has inlined them.
Legend: B samples, D width of a representation, R references: the global model's and the previous ones'.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch

from moonfed.blobs.tensors import TensorSpec
from moonfed.bundle.manifest import Roles, Schedule


@dataclass(frozen=True, slots=True)
class ExchangeShapes:
    """The sizes that the shapes of a method's exchanged tensors follow from."""

    tensors: tuple[TensorSpec, ...]  # the shared ones, in the manifest's order
    classes: int
    width: int  # of the representation z

    @property
    def parameters(self) -> tuple[TensorSpec, ...]:
        """The tensors that are trained."""
        return tuple(spec for spec in self.tensors if spec.kind == "parameter")


class Objective(torch.nn.Module):
    """A round's local objective: scripted hooks, in the order of their calls.

    `parameters`: the model's trained tensors, in the manifest's order. `hyperparameters`: the round's, both the
    optimiser's and the method's. State that a hook keeps for a later one is created in `begin`, so that the saved plan
    holds no tensors of the model's size.
    """

    def begin(
        self,
        parameters: list[torch.Tensor],
        received: dict[str, list[torch.Tensor]],
        hyperparameters: dict[str, float],
    ) -> None:
        """Begin a round: `parameters` hold the global model; an absent role of `received` counts as zeros."""

    def reference_count(self, previous: int, hyperparameters: dict[str, float]) -> int:
        """Return the number of references per sample, given the previous models: 0 or 1 + previous."""
        return 0

    def references(self, representations_BRD: torch.Tensor, hyperparameters: dict[str, float]) -> torch.Tensor:
        """Return the loss's inputs from the frozen encoders' representations [B, R, D]; kept for a round.

        Without gradients. By default the representations themselves.
        """
        return representations_BRD

    def trains_encoder(self, previous: int, hyperparameters: dict[str, float]) -> bool:
        """Return whether this round trains encoder and head; if not, they are in eval mode and get no gradients."""
        return True

    def forward(
        self,
        loss: torch.Tensor,
        outputs: torch.Tensor,
        z_BD: torch.Tensor,
        targets: torch.Tensor,
        references_BRD: torch.Tensor,
        hyperparameters: dict[str, float],
    ) -> torch.Tensor:
        """Return the batch's loss, a scalar; without gradients if it depends on no parameter.

        `loss`: the task's, averaged over the batch, which most methods add a term to. `outputs` [B, …] are the
        network's, such as logits, and `targets` [B, …] the task's, such as labels.
        """
        return loss

    def regularise(
        self,
        loss: torch.Tensor,
        gradients: list[torch.Tensor | None],
        parameters: list[torch.Tensor],
        hyperparameters: dict[str, float],
    ) -> tuple[torch.Tensor, list[torch.Tensor | None]]:
        """Return the loss and gradients with the terms of the parameters alone; None where there is no gradient."""
        return loss, gradients

    def after_step(
        self, parameters: list[torch.Tensor], hyperparameters: dict[str, float], skip: torch.Tensor | None
    ) -> None:
        """Change the parameters in place after each of the optimiser's steps, outside its momentum.

        `skip`: a scalar that is 1 if the optimiser skipped the step and 0 if not; None if it skips none.
        """

    def wants_survey(self, trained: bool, hyperparameters: dict[str, float]) -> bool:
        """Return whether `survey` must see all samples before the first step (False) or after the last (True)."""
        return False

    def survey(
        self,
        loss: torch.Tensor,
        outputs: torch.Tensor,
        z_BD: torch.Tensor,
        targets: torch.Tensor,
        parameters: list[torch.Tensor],
        steps: int,
    ) -> None:
        """See a batch in eval mode, without augmentation; `steps` is 0 before training. Gradients can be taken.

        `loss`: the task's, summed over the batch.
        """

    def results(
        self, parameters: list[torch.Tensor], steps: torch.Tensor, hyperparameters: dict[str, float]
    ) -> dict[str, list[torch.Tensor]]:
        """Return the round's results other than the model, by role; `steps`, a scalar: that the optimiser took."""
        nothing: dict[str, list[torch.Tensor]] = {}
        return nothing

    def metrics(self, parameters: list[torch.Tensor], hyperparameters: dict[str, float]) -> dict[str, torch.Tensor]:
        """Return the objective's measurements of the round by name, scalars; not finite: there is none."""
        nothing: dict[str, torch.Tensor] = {}
        return nothing


class Method(ABC):
    """A method's settings: a frozen dataclass, checked when it is made, whose defaults are the paper's.

    The base is a method that exchanges the model and compares it with none. A setting of the same name replaces a
    property.
    """

    __slots__ = ()
    exchanges: ClassVar[bool] = True  # whether devices exchange anything; what does not cannot be federated
    compares_representations: ClassVar[bool] = False  # in the loss; its networks then have a projection head by default
    needs_classes: ClassVar[bool] = False  # whether each sample must have one class, as for means by class
    trains_personal_model: ClassVar[bool] = False  # besides the global one: a whole model that stays on the device
    assumes_sgd: ClassVar[bool] = False  # of the local optimiser: its results follow from steps of SGD
    default_epochs: ClassVar[int] = 10  # of local training; Li, He, Song (CVPR 2021), section 4.1

    @property
    def previous_models(self) -> int:
        """The maximum number of previous local models that a round uses."""
        return 0

    @property
    def frozen_encoders(self) -> int:
        """The number of frozen copies of encoder and head in the plan, which cost memory."""
        return 0

    @property
    def prototype_devices(self) -> int:
        """The number of devices drawn each round for a class's prototype; 0: all, or there are no prototypes."""
        return 0

    def hyperparameters(self) -> dict[str, float]:
        """Return the hyperparameters that the objective reads, by name; schedules may change them by the round."""
        return {}

    def schedules(self) -> dict[str, Schedule]:
        """Return the schedules of the hyperparameters that change by the round."""
        return {}

    def downlink(self, shapes: ExchangeShapes) -> Roles:
        """Return the global state other than the model that a round starts from."""
        return {}

    def uplink(self, shapes: ExchangeShapes) -> Roles:
        """Return the parts of an update other than the model."""
        return {}

    def device_state(self, shapes: ExchangeShapes) -> Roles:
        """Return the state that a device keeps from a round that counted its update."""
        return {}

    @abstractmethod
    def objective(self) -> Objective:
        """Construct the local objective."""
