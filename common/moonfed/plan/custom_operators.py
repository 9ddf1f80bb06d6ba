"""Operators that plans may use besides torch's.

On the CPU, torch's fused kernels of SGD and Adam read and write beyond tensors of unequal sizes, types or layouts, and
its LSTM reads beyond weights of another shape. So plans call `moonfed::sgd_`, `moonfed::adam_` and `moonfed::lstm`,
which check them, and inspection rejects torch's own.
Importing this module makes the operators known to torch.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

_library = torch.library.Library("moonfed", "DEF")  # type: ignore[no-untyped-call]
_library.define(  # type: ignore[no-untyped-call]
    "sgd_(Tensor(a!)[] parameters, Tensor?[] gradients, Tensor(b!)[] momenta, *, Scalar learning_rate, "
    "Scalar momentum, Scalar weight_decay, Tensor? rate, Tensor? skip) -> ()"
)
_library.define(  # type: ignore[no-untyped-call]
    "adam_(Tensor(a!)[] parameters, Tensor?[] gradients, Tensor(b!)[] means, Tensor(c!)[] squares, "
    "Tensor(d!)[] steps, *, Scalar learning_rate, Scalar beta1, Scalar beta2, Scalar epsilon, Scalar weight_decay, "
    "bool decoupled, Tensor? rate, Tensor? skip) -> ()"
)
_library.define(  # type: ignore[no-untyped-call]
    "lstm(Tensor input, Tensor[] hx, Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, "
    "bool bidirectional, bool batch_first) -> (Tensor, Tensor, Tensor)"
)


def sgd_(
    parameters: Sequence[torch.Tensor],
    gradients: Sequence[torch.Tensor | None],
    momenta: Sequence[torch.Tensor],
    *,
    learning_rate: float,
    momentum: float,
    weight_decay: float,
    rate: torch.Tensor | None,
    skip: torch.Tensor | None,
) -> None:
    """Take a step of torch.optim.SGD in place, for the parameters that have a gradient.

    `momenta`: one per parameter. `rate`: a scalar in place of `learning_rate`, so that a CUDA graph can vary it.
    `skip`: a scalar that is 1 to leave everything unchanged, including the momenta. Raises ValueError for tensors that
    the kernel would read or write beyond.
    """
    used, used_gradients, (used_momenta,) = _checked(parameters, gradients, [momenta])
    if not used:
        return
    for name, scalar in (("rate", rate), ("skip", skip)):
        if scalar is not None:
            _require_scalar(name, scalar, used[0])
    torch.ops.aten._fused_sgd_(
        used,
        used_gradients,
        used_momenta if momentum > 0.0 else [],  # without momentum, the kernel requires an empty list
        weight_decay=weight_decay,
        momentum=momentum,
        lr=learning_rate if rate is None else rate,
        dampening=0.0,
        nesterov=False,
        maximize=False,
        is_first_step=False,
        found_inf=skip,
    )


def adam_(
    parameters: Sequence[torch.Tensor],
    gradients: Sequence[torch.Tensor | None],
    means: Sequence[torch.Tensor],
    squares: Sequence[torch.Tensor],
    steps: Sequence[torch.Tensor],
    *,
    learning_rate: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    weight_decay: float,
    decoupled: bool,
    rate: torch.Tensor | None,
    skip: torch.Tensor | None,
) -> None:
    """Take a step of torch.optim.Adam in place, or AdamW if `decoupled`, for the parameters that have a gradient.

    `means`, `squares`: of the gradients, one per parameter; `steps`: scalars that count each parameter's. `rate`: as
    of `sgd_`. `skip`: a scalar that is 1 to leave everything unchanged. Raises ValueError for tensors that the kernel
    would read or write beyond.
    """
    used, used_gradients, (used_means, used_squares) = _checked(parameters, gradients, [means, squares])
    if len(steps) != len(parameters):
        raise ValueError("parameters and steps must be equal in number")
    used_steps = [step for step, gradient in zip(steps, gradients, strict=True) if gradient is not None]
    if not used:
        return
    for parameter, step in zip(used, used_steps, strict=True):
        _require_scalar("each of steps", step, parameter)
    for name, scalar in (("rate", rate), ("skip", skip)):
        if scalar is not None:
            _require_scalar(name, scalar, used[0])
    torch._foreach_add_(used_steps, 1.0)
    kernel = torch.ops.aten._fused_adamw_ if decoupled else torch.ops.aten._fused_adam_
    kernel(
        used,
        used_gradients,
        used_means,
        used_squares,
        [],  # of AMSGrad
        used_steps,
        lr=learning_rate if rate is None else rate,
        beta1=beta1,
        beta2=beta2,
        weight_decay=weight_decay,
        eps=epsilon,
        amsgrad=False,
        maximize=False,
        found_inf=skip,
    )
    if skip is not None:
        torch._foreach_sub_(used_steps, [skip.reshape(()).expand_as(step) for step in used_steps])


def lstm(
    inputs: torch.Tensor,
    states: Sequence[torch.Tensor],
    weights: Sequence[torch.Tensor],
    has_biases: bool,
    layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Compute torch.lstm, in the weights' type also where autocast is on.

    Raises ValueError for tensors that the kernel would read beyond.
    """
    directions = 2 if bidirectional else 1
    _require_states(inputs, states, directions * layers, batch_first)
    if not 0.0 <= dropout <= 1.0:
        raise ValueError("dropout must be from 0 to 1")
    hidden = states[0].size(2)
    shapes: list[tuple[int, ...]] = []
    for layer in range(layers):
        width = inputs.size(2) if layer == 0 else directions * hidden
        biases = [(4 * hidden,)] * 2 if has_biases else []
        shapes += [(4 * hidden, width), (4 * hidden, hidden), *biases] * directions
    if [tuple(weight.shape) for weight in weights] != shapes:
        raise ValueError("the weights of an LSTM must have the shapes that follow from its sizes")
    first = weights[0]
    if first.dtype not in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        raise ValueError("the weights of an LSTM must be floating-point numbers")
    for tensor in (*weights, *states, inputs):
        if tensor.device != first.device or tensor.layout != torch.strided or not tensor.is_floating_point():
            raise ValueError("inputs, states and weights must be dense floating-point tensors on the same device")
    if any(weight.dtype != first.dtype for weight in weights):
        raise ValueError("the weights of an LSTM must be equal in type")
    with torch.autocast(first.device.type, enabled=False):
        return torch.lstm(
            inputs.to(first.dtype).contiguous(),
            [state.to(first.dtype).contiguous() for state in states],
            [weight.contiguous() for weight in weights],
            has_biases,
            layers,
            dropout,
            train,
            bidirectional,
            batch_first,
        )


def _require_states(inputs: torch.Tensor, states: Sequence[torch.Tensor], count: int, batch_first: bool) -> None:
    if inputs.dim() != 3 or inputs.numel() == 0:
        raise ValueError("the input of an LSTM must have three dimensions, none of them empty")
    batch = inputs.size(0 if batch_first else 1)
    if count < 1 or len(states) != 2 or states[0].dim() != 3 or states[0].numel() == 0:
        raise ValueError("an LSTM has one layer at least, and two states [layers, batch, width]")
    if any(state.shape != (count, batch, states[0].size(2)) for state in states):
        raise ValueError("both states of an LSTM must be [layers, batch, width]")


def _checked(
    parameters: Sequence[torch.Tensor],
    gradients: Sequence[torch.Tensor | None],
    moments: Sequence[Sequence[torch.Tensor]],
) -> tuple[list[torch.Tensor], list[torch.Tensor], list[list[torch.Tensor]]]:
    """Return the parameters that have a gradient, the gradients in their layout, and their moments of each kind."""
    if any(len(given) != len(parameters) for given in (gradients, *moments)):
        raise ValueError("parameters, gradients and moments must be equal in number")
    used: list[torch.Tensor] = []
    used_gradients: list[torch.Tensor] = []
    used_moments: list[list[torch.Tensor]] = [[] for _ in moments]
    for index, (parameter, gradient) in enumerate(zip(parameters, gradients, strict=True)):
        if gradient is None:
            continue
        used.append(parameter)
        used_gradients.append(_laid_out_as(parameter, gradient))
        _require_dense(parameter)
        for given, found in zip(moments, used_moments, strict=True):
            _require_equal(parameter, given[index])
            found.append(given[index])
    return used, used_gradients, used_moments


def _require_scalar(name: str, scalar: torch.Tensor, parameter: torch.Tensor) -> None:
    if not (scalar.numel() == 1 and scalar.dtype == torch.float32 and scalar.device == parameter.device):
        raise ValueError(f"{name} must be one float32 on the parameters' device")


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
        raise ValueError("a parameter, its gradient and its moments must be equal in shape, layout, type and device")


def _require_dense(parameter: torch.Tensor) -> None:
    """Raise ValueError for a parameter whose elements overlap or have gaps between them."""
    if not (parameter.is_contiguous() or torch.ops.aten.is_non_overlapping_and_dense(parameter)):
        raise ValueError("a parameter must be dense")


_library.impl("sgd_", sgd_, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
_library.impl("adam_", adam_, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
_library.impl("lstm", lstm, "CompositeImplicitAutograd")  # type: ignore[no-untyped-call]
