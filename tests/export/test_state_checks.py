"""State that `forward` changes must be what devices exchange."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from moonfed.errors import InvalidInput
from moonfed.export.network import Network
from moonfed.export.state_checks import CALLS, require_exchanged_state


class Stateful(nn.Module):
    """A layer with a buffer for everything that a layer may do to it."""

    mean: torch.Tensor
    count: torch.Tensor
    mask: torch.Tensor

    def __init__(self, change: Callable[[Stateful, torch.Tensor], None], *, always: bool = False) -> None:
        super().__init__()
        self.change, self.always = change, always
        self.register_buffer("mean", torch.zeros(3))
        self.register_buffer("count", torch.zeros((), dtype=torch.long))
        self.register_buffer("mask", torch.zeros(3), persistent=False)
        self.weight = nn.Parameter(torch.ones(3))
        self.history: list[float] = []
        self.momentum, self.sizes, self.plain = 0.1, {"n": 0}, torch.zeros(3)
        self.grid: torch.Tensor | None = None

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if self.training or self.always:
            self.change(self, inputs)
        return inputs - self.mean


def replace_buffer(layer: Stateful, x: torch.Tensor) -> None:
    layer.mean = 0.9 * layer.mean + 0.1 * x.mean(0)


def write_buffer(layer: Stateful, x: torch.Tensor) -> None:
    layer.mean.copy_(0.9 * layer.mean + 0.1 * x.mean(0))


def replace_parameter(layer: Stateful, x: torch.Tensor) -> None:
    layer.weight = nn.Parameter(layer.weight + x.mean())


def write_parameter(layer: Stateful, x: torch.Tensor) -> None:
    layer.weight.data.add_(x.mean())


def assign_tensor(layer: Stateful, x: torch.Tensor) -> None:
    layer.plain = layer.plain + x.mean(0)


def write_tensor(layer: Stateful, x: torch.Tensor) -> None:
    layer.plain.add_(x.mean(0))


def append(layer: Stateful, x: torch.Tensor) -> None:
    layer.history.append(float(x.mean()))


def assign_number(layer: Stateful, _: torch.Tensor) -> None:
    layer.momentum *= 0.9


def write_dictionary(layer: Stateful, x: torch.Tensor) -> None:
    layer.sizes["n"] += len(x)


def count_steps(layer: Stateful, _: torch.Tensor) -> None:
    layer.count.add_(1)


def write_mask(layer: Stateful, x: torch.Tensor) -> None:
    layer.mask.copy_(x[0])


def cache(layer: Stateful, x: torch.Tensor) -> None:
    if layer.grid is None:
        layer.grid = torch.linspace(0, 1, x.size(1))


def network(encoder: nn.Module) -> Network:
    return Network(nn.Identity(), encoder, nn.Identity(), nn.Linear(3, 2))


def check(encoder: nn.Module) -> None:
    require_exchanged_state(network(encoder), [torch.randn(4, 3) for _ in range(CALLS)], "mine:net")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (replace_buffer, r"buffer 'encoder\.1\.mean' is replaced in forward; write into it: self\.mean\.copy_"),
        (replace_parameter, r"parameter 'encoder\.1\.weight' is replaced in forward"),
        (assign_tensor, r"attribute 'encoder\.1\.plain' changes in forward and is not exchanged; register it"),
        (write_tensor, r"attribute 'encoder\.1\.plain' changes in forward"),
        (append, r"attribute 'encoder\.1\.history' changes"),
        (assign_number, r"attribute 'encoder\.1\.momentum' changes"),
        (write_dictionary, r"attribute 'encoder\.1\.sizes' changes"),
        (count_steps, r"buffer 'encoder\.1\.count' of torch\.int64 changes .* make it torch\.float32"),
        (write_mask, r"buffer 'encoder\.1\.mask' changes in forward and is not persistent"),
    ],
)
def test_changes_that_stay_on_the_device_are_refused_by_name(
    change: Callable[[Stateful, torch.Tensor], None], told: str
) -> None:
    with pytest.raises(InvalidInput, match=f"model is 'mine:net', whose {told}"):
        check(nn.Sequential(nn.Linear(3, 3), Stateful(change)))


@pytest.mark.parametrize("change", [write_buffer, count_steps])
def test_predictions_change_nothing(change: Callable[[Stateful, torch.Tensor], None]) -> None:
    with pytest.raises(InvalidInput, match=r"buffer 'encoder\.(mean|count)'"):
        check(Stateful(change, always=True))


@pytest.mark.parametrize(
    "encoder",
    [
        Stateful(write_buffer),
        Stateful(write_parameter),
        Stateful(cache, always=True),
        nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Dropout(0.5)),
        nn.LayerNorm(3),
    ],
    ids=["buffer", "parameter", "cache", "batch-norm", "layer-norm"],
)
def test_what_devices_exchange_may_change(encoder: nn.Module) -> None:
    held = {name: tensor.clone() for name, tensor in encoder.state_dict().items()}
    check(encoder)
    assert all(torch.equal(tensor, held[name]) for name, tensor in encoder.state_dict().items()), "a copy is tried"


def test_a_cumulative_batch_norm_needs_a_counter_that_is_not_exchanged() -> None:
    with pytest.raises(InvalidInput, match="num_batches_tracked' is needed if momentum is None"):
        check(nn.BatchNorm1d(3, momentum=None))


class Failing(nn.Module):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if self.training:
            return inputs * {"a": 1.0}["b"]
        return inputs


def test_an_error_in_training_mode_only_is_reported_with_its_place() -> None:
    with pytest.raises(
        InvalidInput, match=r"fails in training mode: KeyError in .*test_state_checks\.py, line \d+: 'b'"
    ):
        check(Failing())


def test_a_model_that_cannot_be_copied_is_named() -> None:
    held = Stateful(cache)
    held.plain = torch.ones(3, requires_grad=True) * 2
    with pytest.raises(InvalidInput, match="model is 'mine:net', which cannot be copied: Only Tensors created"):
        check(held)
