"""The local optimisers inside TorchScript, equivalent to those of torch.optim, and their settings.

Sources: SGD with the settings of Li, He, Song (CVPR 2021), section 4.1; Adam: Kingma, Ba (ICLR 2015), algorithm 1;
AdamW: Loshchilov, Hutter (ICLR 2019), algorithm 2; clipping by norm: Pascanu, Mikolov, Bengio (ICML 2013), algorithm 1.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import ClassVar, Final

import torch

import moonfed.plan.custom_operators  # noqa: F401 - defines moonfed::sgd_ and moonfed::adam_
from moonfed.bundle.manifest import CONSTANT
from moonfed.errors import InvalidInput
from moonfed.export.script_utils import present, refilled
from moonfed.export.step_schedule import read_step_schedule
from moonfed.validate import require_at_least, require_positive, require_whole

PERSONAL_SHARE = "personal_share"  # of a round's steps, the first ones: the hyperparameter of `personal_epochs`
CLIPPING = ("gradient_clip_value", "gradient_clip_norm")


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimiser(ABC):
    """The settings that all optimisers share, most of them hyperparameters of the plan.

    `gradient_clip_value`: the largest magnitude of an element, `gradient_clip_norm`: the largest L2 norm of all
    gradients together, which are scaled down as by torch.nn.utils.clip_grad_norm_; 0: no limit. Elements are clipped
    first. `step_schedule`: of the learning rate over the steps of a round, see `moonfed.export.step_schedule`.
    `personal_epochs`: those at the beginning of a round that train personal tensors alone; the others then train the
    shared ones alone, as in FedRep (Collins et al., ICML 2021). 0: all epochs train both.
    """

    name: ClassVar[str]
    learning_rate: float
    weight_decay: float
    gradient_clip_value: float = 0.0
    gradient_clip_norm: float = 0.0
    step_schedule: str = CONSTANT
    personal_epochs: int = 0

    def __post_init__(self) -> None:
        require_whole("personal_epochs", self.personal_epochs, 0)
        read_step_schedule(self.step_schedule)
        require_positive("learning_rate", self.learning_rate)
        for name in ("weight_decay", *CLIPPING):
            require_at_least(name, getattr(self, name), 0.0)

    @abstractmethod
    def module(self) -> torch.nn.Module:
        """Return the optimiser of one round, for TorchScript."""

    def hyperparameters(self) -> dict[str, float]:
        """Return the plan's hyperparameters; limits that are not set are none."""
        names = [item.name for item in fields(self) if item.name not in ("step_schedule", "personal_epochs")]
        values = {name: float(getattr(self, name)) for name in names}
        return {name: value for name, value in values.items() if value or name not in CLIPPING}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sgd(Optimiser):
    """Stochastic gradient descent."""

    name: ClassVar[str] = "sgd"
    learning_rate: float = 0.01
    momentum: float = 0.9
    weight_decay: float = 1e-5

    def __post_init__(self) -> None:
        Optimiser.__post_init__(self)
        require_at_least("momentum", self.momentum, 0.0, below=1.0)

    def module(self) -> torch.nn.Module:
        """Return the optimiser of one round."""
        return SgdOptimiser()


@dataclass(frozen=True, slots=True, kw_only=True)
class Adam(Optimiser):
    """Adam; its weight decay is added to the gradients."""

    name: ClassVar[str] = "adam"
    decoupled: ClassVar[bool] = False  # whether weight decay is applied to the weights, outside the moments
    learning_rate: float = 0.001
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        Optimiser.__post_init__(self)
        for name in ("beta1", "beta2"):
            require_at_least(name, getattr(self, name), 0.0, below=1.0)
        require_positive("epsilon", self.epsilon)

    def module(self) -> torch.nn.Module:
        """Return the optimiser of one round."""
        return AdamOptimiser(self.decoupled)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdamW(Adam):
    """Adam with decoupled weight decay."""

    name: ClassVar[str] = "adamw"
    decoupled: ClassVar[bool] = True
    weight_decay: float = 0.01


OPTIMISERS: Mapping[str, type[Optimiser]] = {kind.name: kind for kind in (Sgd, Adam, AdamW)}


def read_optimiser(name: str) -> type[Optimiser]:
    """Return the settings class of an optimiser; InvalidInput for an unknown name."""
    if name not in OPTIMISERS:
        raise InvalidInput(field="optimiser", value=name, allowed=f"one of {', '.join(OPTIMISERS)}")
    return OPTIMISERS[name]


def clipped(gradients: list[torch.Tensor | None], hyperparameters: dict[str, float]) -> list[torch.Tensor | None]:
    """Return the gradients within the limits of `Optimiser`; None where there is no gradient."""
    if "gradient_clip_value" in hyperparameters:
        limit = hyperparameters["gradient_clip_value"]
        gradients = refilled(gradients, [gradient.clamp(-limit, limit) for gradient in present(gradients)])
    used = present(gradients)
    if used and "gradient_clip_norm" in hyperparameters:
        norms: list[torch.Tensor] = torch._foreach_norm(used)  # type: ignore[assignment]
        norm = torch.linalg.vector_norm(torch.stack(norms))
        factor = (hyperparameters["gradient_clip_norm"] / (norm + 1e-6)).clamp(max=1.0)
        # Not in place: two parameters may share a gradient tensor.
        scaled: list[torch.Tensor] = torch._foreach_mul(used, factor)  # type: ignore[assignment]
        gradients = refilled(gradients, scaled)
    return gradients


class SgdOptimiser(torch.nn.Module):
    """SGD of one round."""

    momenta: list[torch.Tensor]  # one per parameter

    def __init__(self) -> None:
        super().__init__()
        self.momenta = []

    @torch.jit.export
    def begin(self, parameters: list[torch.Tensor]) -> None:
        """Reset the momenta to zero: the first one becomes the gradient, as in torch.optim.SGD."""
        self.momenta = [torch.zeros_like(parameter) for parameter in parameters]

    @torch.jit.export
    def step(
        self,
        parameters: list[torch.Tensor],
        gradients: list[torch.Tensor | None],
        hyperparameters: dict[str, float],
        rate: torch.Tensor | None,
        skip: torch.Tensor | None,
    ) -> None:
        """Update the parameters in place, except those without a gradient, like torch.optim.SGD.

        `rate`: a scalar in place of the hyperparameter `learning_rate`. `skip`: a scalar that is 1 to leave everything
        unchanged, including the momenta.
        """
        with torch.no_grad():
            torch.ops.moonfed.sgd_(
                parameters,
                gradients,
                self.momenta,
                learning_rate=hyperparameters["learning_rate"],
                momentum=hyperparameters["momentum"],
                weight_decay=hyperparameters["weight_decay"],
                rate=rate,
                skip=skip,
            )


class AdamOptimiser(torch.nn.Module):
    """Adam or AdamW of one round."""

    decoupled: Final[bool]
    means: list[torch.Tensor]  # of the gradients, one per parameter
    squares: list[torch.Tensor]  # means of the squared gradients
    steps: list[torch.Tensor]  # taken for each parameter, scalars

    def __init__(self, decoupled: bool) -> None:
        super().__init__()
        self.decoupled = decoupled
        self.means = []
        self.squares = []
        self.steps = []

    @torch.jit.export
    def begin(self, parameters: list[torch.Tensor]) -> None:
        """Reset the moments and the steps to zero."""
        self.means = [torch.zeros_like(parameter) for parameter in parameters]
        self.squares = [torch.zeros_like(parameter) for parameter in parameters]
        self.steps = [torch.zeros([], device=parameter.device) for parameter in parameters]

    @torch.jit.export
    def step(
        self,
        parameters: list[torch.Tensor],
        gradients: list[torch.Tensor | None],
        hyperparameters: dict[str, float],
        rate: torch.Tensor | None,
        skip: torch.Tensor | None,
    ) -> None:
        """Update the parameters in place, except those without a gradient, like torch.optim.Adam or AdamW.

        `rate`: a scalar in place of the hyperparameter `learning_rate`. `skip`: a scalar that is 1 to leave everything
        unchanged, including moments and steps.
        """
        with torch.no_grad():
            torch.ops.moonfed.adam_(
                parameters,
                gradients,
                self.means,
                self.squares,
                self.steps,
                learning_rate=hyperparameters["learning_rate"],
                beta1=hyperparameters["beta1"],
                beta2=hyperparameters["beta2"],
                epsilon=hyperparameters["epsilon"],
                weight_decay=hyperparameters["weight_decay"],
                decoupled=self.decoupled,
                rate=rate,
                skip=skip,
            )
