"""Operators that plans may use besides torch's.

On the CPU, torch's fused kernel of stochastic gradient descent reads and writes beyond tensors of unequal sizes, types
or layouts. So plans call `moonfed::sgd_`, which checks them, and inspection rejects the kernel itself. Importing this
module makes the operator known to torch.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

_library = torch.library.Library("moonfed", "DEF")  # type: ignore[no-untyped-call]
_library.define(  # type: ignore[no-untyped-call]
    "sgd_(Tensor(a!)[] parameters, Tensor?[] gradients, Tensor(b!)[] momenta, *, float learning_rate, float momentum, "
    "float weight_decay, Tensor? skip) -> ()"
)


def sgd_(
    parameters: Sequence[torch.Tensor],
    gradients: Sequence[torch.Tensor | None],
    momenta: Sequence[torch.Tensor],
    *,
    learning_rate: float,
    momentum: float,
    weight_decay: float,
    skip: torch.Tensor | None,
) -> None:
    """Take a step of torch.optim.SGD in place, for the parameters that have a gradient.

    `momenta`: one per parameter. `skip`: a scalar that is 1 to leave everything unchanged, including the momenta.
    Raises ValueError for tensors that the kernel would read or write beyond.
    """
    if not len(parameters) == len(gradients) == len(momenta):
        raise ValueError("parameters, gradients and momenta must be equal in number")
    used: list[torch.Tensor] = []
    used_gradients: list[torch.Tensor] = []
    used_momenta: list[torch.Tensor] = []
    for parameter, gradient, moment in zip(parameters, gradients, momenta, strict=True):
        if gradient is not None:
            used.append(parameter)
            used_gradients.append(_laid_out_as(parameter, gradient))
            used_momenta.append(moment)
            _require_dense(parameter)
            _require_equal(parameter, moment)
    if not used:
        return
    if skip is not None and not (skip.numel() == 1 and skip.dtype == torch.float32 and skip.device == used[0].device):
        raise ValueError("skip must be one float32 on the parameters' device")
    torch.ops.aten._fused_sgd_(
        used,
        used_gradients,
        used_momenta if momentum > 0.0 else [],  # without momentum, the kernel requires an empty list
        weight_decay=weight_decay,
        momentum=momentum,
        lr=learning_rate,
        dampening=0.0,
        nesterov=False,
        maximize=False,
        is_first_step=False,
        found_inf=skip,
    )


def _laid_out_as(parameter: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    """Return the gradient in the parameter's memory layout, because the kernel ignores strides."""
    if gradient.stride() != parameter.stride() and gradient.shape == parameter.shape:
        gradient = torch.empty_like(parameter).copy_(gradient)
    _require_equal(parameter, gradient)
    return gradient


def _require_equal(parameter: torch.Tensor, other: torch.Tensor) -> None:
    if (
        other.shape != parameter.shape
        or other.stride() != parameter.stride()
        or other.dtype != parameter.dtype
        or other.device != parameter.device
    ):
        raise ValueError("a parameter, its gradient and its momentum must be equal in shape, layout, type and device")


def _require_dense(parameter: torch.Tensor) -> None:
    """Raise ValueError for a parameter whose elements overlap or have gaps between them."""
    if not (parameter.is_contiguous() or torch.ops.aten.is_non_overlapping_and_dense(parameter)):
        raise ValueError("a parameter must be dense")


_library.impl("sgd_", sgd_, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
