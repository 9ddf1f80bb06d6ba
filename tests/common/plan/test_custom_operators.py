"""moonfed's operators for plans: equal to torch.optim, and safe with tensors that torch's kernels read beyond."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from moonfed.plan.custom_operators import adam_, lstm, sgd_

VALUES: dict[str, float] = {"learning_rate": 0.1, "momentum": 0.9, "weight_decay": 0.01}
Lists = tuple[list[torch.Tensor], list[torch.Tensor | None], list[torch.Tensor]]


def lists(*shapes: tuple[int, ...]) -> Lists:
    """Parameters, gradients and momenta of these shapes."""
    generator = torch.Generator().manual_seed(3)
    parameters, gradients = ([torch.randn(shape, generator=generator) for shape in shapes] for _ in range(2))
    return parameters, list(gradients), [torch.zeros(shape) for shape in shapes]


def step(given: Lists, skip: torch.Tensor | None = None, rate: torch.Tensor | None = None, **values: float) -> None:
    chosen: dict[str, Any] = {**VALUES, **values}
    sgd_(*given, rate=rate, skip=skip, **chosen)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("decay", [0.0, 0.01])
def test_steps_are_those_of_torchs_optimiser(momentum: float, decay: float) -> None:
    given = lists((4, 3), (7,))
    expected = [torch.nn.Parameter(parameter.clone()) for parameter in given[0]]
    plain = torch.optim.SGD(expected, lr=0.1, momentum=momentum, weight_decay=decay)
    for _ in range(4):
        for parameter, gradient in zip(expected, given[1], strict=True):
            parameter.grad = gradient
        plain.step()
        step(given, momentum=momentum, weight_decay=decay)
    torch.testing.assert_close(given[0], [parameter.detach() for parameter in expected])


def test_a_parameter_without_a_gradient_stays() -> None:
    given = lists((4,), (5,))
    before = given[0][1].clone()
    given[1][1] = None
    step(given)
    assert torch.equal(given[0][1], before)
    step((given[0], [None, None], given[2]))


def test_a_skipped_step_changes_nothing() -> None:
    given = lists((4, 3))
    before = given[0][0].clone()
    given[1][0] = torch.full((4, 3), torch.inf)
    step(given, torch.ones([]))
    assert torch.equal(given[0][0], before)
    assert not given[2][0].any()


def test_a_gradient_may_have_another_layout() -> None:
    given, other = lists((4, 3, 2, 5)), lists((4, 3, 2, 5))
    gradient = other[1][0]
    assert gradient is not None
    other[1][0] = gradient.contiguous(memory_format=torch.channels_last)
    step(given)
    step(other)
    assert torch.equal(given[0][0], other[0][0])


def changed(place: int, tensor: torch.Tensor) -> Lists:
    """Return lists in which one tensor is replaced."""
    given: tuple[list[Any], ...] = lists((4, 3))
    given[place][0] = tensor
    return given  # type: ignore[return-value]


ONE = torch.zeros(1).expand(4, 3)
BESIDES: dict[str, Any] = {
    "learning_rate": 0.01,
    "beta1": 0.9,
    "beta2": 0.999,
    "epsilon": 1e-8,
    "rate": None,
    "skip": None,
}
Moments = tuple[list[torch.Tensor], list[torch.Tensor], list[torch.Tensor]]  # means, squares and steps


def moments(parameters: list[torch.Tensor]) -> Moments:
    zeros = ([torch.zeros_like(parameter) for parameter in parameters] for _ in range(2))
    return next(zeros), next(zeros), [torch.zeros([]) for _ in parameters]


@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW])
def test_a_hundred_steps_are_those_of_torchs_adam(kind: Any, decay: float) -> None:
    parameters, gradients, _ = lists((4, 3), (7,))
    expected = [torch.nn.Parameter(parameter.clone()) for parameter in parameters]
    plain = kind(expected, lr=0.01, weight_decay=decay)
    kept = moments(parameters)
    generator = torch.Generator().manual_seed(5)
    for _ in range(100):
        gradients = [torch.randn(parameter.shape, generator=generator) for parameter in parameters]
        for parameter, gradient in zip(expected, gradients, strict=True):
            parameter.grad = gradient
        plain.step()
        decoupled = kind is torch.optim.AdamW
        adam_(parameters, gradients, *kept, **BESIDES, weight_decay=decay, decoupled=decoupled)
    torch.testing.assert_close(parameters, [parameter.detach() for parameter in expected], rtol=0, atol=1e-6)


def test_adam_counts_the_steps_of_each_parameter_and_leaves_one_without_a_gradient() -> None:
    parameters, gradients, _ = lists((4,), (5,))
    before, kept = parameters[1].clone(), moments(parameters)
    adam_(parameters, [gradients[0], None], *kept, **BESIDES, weight_decay=0.1, decoupled=True)
    assert torch.equal(parameters[1], before)
    assert [float(step) for step in kept[2]] == [1, 0]
    adam_(parameters, [None, None], *kept, **BESIDES, weight_decay=0.0, decoupled=False)


def test_a_step_of_adam_that_is_skipped_changes_nothing() -> None:
    parameters, _, _ = lists((4, 3))
    before, kept = parameters[0].clone(), moments(parameters)
    infinite: list[torch.Tensor | None] = [torch.full((4, 3), torch.inf)]
    given = {**BESIDES, "skip": torch.ones([])}
    adam_(parameters, infinite, *kept, **given, weight_decay=0.1, decoupled=False)
    assert torch.equal(parameters[0], before)
    assert not any(one.any() for found in kept for one in found)


@pytest.mark.parametrize(
    ("place", "tensor"),
    [
        (0, torch.zeros(1)),
        (1, torch.zeros(1)),
        (1, torch.zeros(4, 3, dtype=torch.float64)),
        (2, torch.zeros(2, 3)),
        (3, torch.zeros(3, 4).t()),
        (4, torch.zeros(2)),
        (4, torch.zeros([], dtype=torch.int64)),
    ],
)
def test_tensors_that_adams_kernel_would_read_beyond_are_rejected(place: int, tensor: torch.Tensor) -> None:
    parameters, gradients, _ = lists((4, 3))
    given: list[list[Any]] = [parameters, list(gradients), *moments(parameters)]
    given[place][0] = tensor
    with pytest.raises(ValueError, match="must be"):
        adam_(*given, **BESIDES, weight_decay=0.0, decoupled=False)
    given[place] = []
    with pytest.raises(ValueError, match="must be equal in number"):
        adam_(*given, **BESIDES, weight_decay=0.0, decoupled=False)


UNSAFE: dict[str, Callable[[], Lists]] = {
    "a smaller gradient": lambda: changed(1, torch.zeros(1)),
    "a smaller momentum": lambda: changed(2, torch.zeros(1)),
    "a smaller parameter": lambda: changed(0, torch.zeros(1)),
    "a gradient of fewer rows": lambda: changed(1, torch.zeros(2, 3)),
    "a momentum of fewer rows": lambda: changed(2, torch.zeros(2, 3)),
    "a gradient of another type": lambda: changed(1, torch.zeros(4, 3, dtype=torch.float16)),
    "a momentum of another type": lambda: changed(2, torch.zeros(4, 3, dtype=torch.bfloat16)),
    "a momentum of another layout": lambda: changed(2, torch.zeros(3, 4).t()),
    "a momentum of one element": lambda: changed(2, torch.zeros(1).expand(4, 3)),
    "a gradient on another device": lambda: changed(1, torch.zeros(4, 3, device="meta")),
    "only one element": lambda: ([torch.zeros(1).expand(4, 3)], [torch.ones(4, 3)], [torch.zeros(1).expand(4, 3)]),
    "only one element in all": lambda: ([ONE], [ONE], [ONE]),
    "fewer gradients": lambda: (lists((4,), (4,))[0], [torch.zeros(4)], lists((4,), (4,))[2]),
    "fewer momenta": lambda: (*lists((4,), (4,))[:2], [torch.zeros(4)]),
}


@pytest.mark.parametrize("name", UNSAFE)
def test_tensors_that_the_kernel_would_read_beyond_are_rejected(name: str) -> None:
    with pytest.raises(ValueError, match="must be"):
        step(UNSAFE[name]())


@pytest.mark.parametrize(
    "skip", [torch.zeros(0), torch.zeros(2), torch.zeros([], dtype=torch.uint8), torch.zeros([], device="meta")]
)
def test_a_flag_or_a_rate_that_is_no_number_is_rejected(skip: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="skip must be one float32 on the parameters' device"):
        step(lists((4,)), skip)
    with pytest.raises(ValueError, match="rate must be one float32 on the parameters' device"):
        step(lists((4,)), rate=skip)


@torch.jit.script
def scripted(parameters: list[torch.Tensor], gradients: list[torch.Tensor | None], momenta: list[torch.Tensor]) -> None:
    """Call the operator as a plan does."""
    torch.ops.moonfed.sgd_(
        parameters, gradients, momenta, learning_rate=0.1, momentum=0.9, weight_decay=0.0, rate=None, skip=None
    )


def test_a_plan_cannot_avoid_the_checks() -> None:
    with pytest.raises(RuntimeError, match="must be equal in shape"):
        scripted([torch.zeros(1 << 20)], [torch.zeros(1)], [torch.zeros(1 << 20)])


def lstm_arguments(**others: Any) -> dict[str, Any]:
    """Of two layers in both directions, three inputs and four cells."""
    layer = torch.nn.LSTM(3, 4, num_layers=2, bidirectional=True)
    states = torch.zeros(4, 2, 4)
    usual = {
        "inputs": torch.randn(5, 2, 3),
        "states": [states, states],
        "weights": [parameter.detach() for parameter in layer.parameters()],
        "has_biases": True,
        "layers": 2,
        "dropout": 0.0,
        "train": False,
        "bidirectional": True,
        "batch_first": False,
    }
    return usual | others


def test_an_lstm_is_torchs() -> None:
    given = lstm_arguments()
    inputs, states, weights, *others = given.values()
    torch.testing.assert_close(lstm(**given), torch.lstm(inputs, states, weights, *others))


def weights_with(place: int, weight: torch.Tensor) -> list[torch.Tensor]:
    weights: list[torch.Tensor] = lstm_arguments()["weights"]
    return [*weights[:place], weight, *weights[place + 1 :]]


@pytest.mark.parametrize(
    "others",
    [
        pytest.param({"weights": weights_with(0, torch.zeros(16, 2))}, id="narrow-weight"),
        pytest.param({"weights": weights_with(1, torch.zeros(4, 4))}, id="short-weight"),
        pytest.param({"weights": weights_with(2, torch.zeros(1))}, id="short-bias"),
        pytest.param({"weights": weights_with(8, torch.zeros(16, 4))}, id="second-layer"),
        pytest.param({"weights": weights_with(3, torch.zeros(16, dtype=torch.int64))}, id="integers"),
        pytest.param({"weights": weights_with(3, torch.zeros(16, dtype=torch.float64))}, id="types"),
        pytest.param({"weights": weights_with(0, torch.zeros(16, 3).to_sparse())}, id="sparse"),
        pytest.param({"weights": []}, id="no-weights"),
        pytest.param({"has_biases": False}, id="surplus-biases"),
        pytest.param({"layers": 3}, id="more-layers"),
        pytest.param({"layers": 0}, id="no-layers"),
        pytest.param({"layers": 2**62}, id="too-many-layers"),
        pytest.param({"bidirectional": False}, id="one-direction"),
        pytest.param({"batch_first": True}, id="swapped"),
        pytest.param({"inputs": torch.randn(5, 2, 4)}, id="wide-input"),
        pytest.param({"inputs": torch.randn(5, 3)}, id="unbatched"),
        pytest.param({"inputs": torch.randn(0, 2, 3)}, id="empty"),
        pytest.param({"inputs": torch.zeros(5, 2, 3, dtype=torch.int64)}, id="integer-input"),
        pytest.param({"states": [torch.zeros(4, 2, 4)]}, id="one-state"),
        pytest.param({"states": [torch.zeros(4, 2, 4), torch.zeros(4, 1, 4)]}, id="short-state"),
        pytest.param({"states": [torch.zeros(4, 2, 5), torch.zeros(4, 2, 5)]}, id="wide-states"),
        pytest.param({"dropout": 1.5}, id="dropout"),
    ],
)
def test_an_lstm_with_tensors_of_other_sizes_is_refused(others: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"LSTM|dropout|dense"):
        lstm(**lstm_arguments(**others))
