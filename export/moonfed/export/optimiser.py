"""Stochastic gradient descent inside TorchScript, equivalent to torch.optim.SGD, and its settings.

Default settings: Li, He, Song (CVPR 2021), section 4.1: learning rate 0.01, momentum 0.9, weight decay 0.00001.
"""

from dataclasses import dataclass

import torch

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
    updated: list[torch.Tensor]  # the parameters of the latest step

    def __init__(self) -> None:
        super().__init__()
        self.momenta, self.updated = [], []

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
        used: list[torch.Tensor] = []
        used_gradients: list[torch.Tensor] = []
        used_momenta: list[torch.Tensor] = []
        for parameter, gradient, momentum in zip(parameters, gradients, self.momenta):  # noqa: B905 - not in TorchScript
            if gradient is not None:
                used.append(parameter)
                used_gradients.append(laid_out_as(parameter, gradient))
                if hyperparameters["momentum"] > 0.0:  # without momentum, the kernel requires an empty list
                    used_momenta.append(momentum)
        # Only for TorchScript, which would remove in-place updates reachable through a local list as dead code.
        self.updated = used
        with torch.no_grad():
            torch.ops.aten._fused_sgd_(
                used,
                used_gradients,
                used_momenta,
                weight_decay=hyperparameters["weight_decay"],
                momentum=hyperparameters["momentum"],
                lr=hyperparameters["learning_rate"],
                dampening=0.0,
                nesterov=False,
                maximize=False,
                is_first_step=False,
                found_inf=skip,
            )


def laid_out_as(like: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """Copy a tensor to another one's memory layout if they differ: the fused kernel ignores strides."""
    if tensor.stride() == like.stride():
        return tensor
    return torch.empty_like(like).copy_(tensor)
