"""Stochastic gradient descent inside TorchScript, equivalent to torch.optim.SGD, and its settings.

Default settings: Li, He, Song (CVPR 2021), section 4.1: learning rate 0.01, momentum 0.9, weight decay 0.00001.
"""

from dataclasses import dataclass

import torch

import moonfed.plan.custom_operators  # noqa: F401 - defines moonfed::sgd_
from moonfed.validate import require_at_least, require_positive


@dataclass(frozen=True, slots=True, kw_only=True)
class Sgd:
    """The local optimiser's settings."""

    learning_rate: float = 0.01
    momentum: float = 0.9
    weight_decay: float = 1e-5

    def __post_init__(self) -> None:
        require_positive("learning_rate", self.learning_rate)
        require_at_least("momentum", self.momentum, 0.0, below=1.0)
        require_at_least("weight_decay", self.weight_decay, 0.0)


class SgdOptimiser(torch.nn.Module):
    """The optimiser of one round."""

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
        skip: torch.Tensor | None,
    ) -> None:
        """Update the parameters in place, except those without a gradient, like torch.optim.SGD.

        `skip`: a scalar that is 1 to leave everything unchanged, including the momenta.
        """
        with torch.no_grad():
            torch.ops.moonfed.sgd_(
                parameters,
                gradients,
                self.momenta,
                learning_rate=hyperparameters["learning_rate"],
                momentum=hyperparameters["momentum"],
                weight_decay=hyperparameters["weight_decay"],
                skip=skip,
            )
