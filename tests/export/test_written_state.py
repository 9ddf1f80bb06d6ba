"""State that a user's forward writes: exchanged, or refused by name and line."""

import inspect
import re

import pytest
import torch
from torch import nn

from moonfed.bundle.manifest import InputSpec
from moonfed.bundle.target import class_target
from moonfed.errors import InvalidInput
from moonfed.export.bundle_builder import build_bundle
from moonfed.export.bundle_recipe import BundleRecipe
from moonfed.export.network import Network, exchanged_tensors
from moonfed.export.written_state import require_exchanged_state


class Layer(nn.Module):
    """A layer of four features."""

    mean: torch.Tensor
    steps: torch.Tensor
    seen: torch.Tensor
    hidden: torch.Tensor
    total: float
    history: list[float]
    means: list[torch.Tensor]
    table: dict[str, float]

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        self.register_buffer("seen", torch.zeros((), dtype=torch.bool))
        self.register_buffer("hidden", torch.zeros(4), persistent=False)
        self.plain = torch.zeros(4)
        self.total = 0.0
        self.history = [0.0]
        self.means = [torch.zeros(4)]
        self.table = {"mean": 0.0}


class ReplacedBuffer(Layer):
    def forward(self, h: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * h.mean(0).detach()  # here
        return h - self.mean


class ReplacedBySomeoneElse(Layer):
    def update(self, h: torch.Tensor) -> None:
        self.mean = 0.9 * self.mean + 0.1 * h.mean(0).detach()  # here

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        if float(h.sum()) > 1e9:
            self.update(h)
        return h - self.mean


class PlainTensor(Layer):
    def forward(self, h: torch.Tensor) -> torch.Tensor:
        self.plain = self.plain + h.mean(0).detach()  # here
        return h - self.plain


class PlainTensorInPlace(Layer):
    def forward(self, h: torch.Tensor) -> torch.Tensor:
        self.plain.mul_(0.9)  # here
        return h - self.plain


class View(Layer):
    def forward(self, h: torch.Tensor) -> torch.Tensor:
        self.plain[1:].mul_(0.9)  # here
        return h - self.plain


class Number(Layer):
    def forward(self, h: torch.Tensor) -> torch.Tensor:
        self.total += 1.0  # here
        return h * self.total


class Appended(Layer):
    def forward(self, h: torch.Tensor) -> torch.Tensor:
        self.history.append(float(h.mean()))  # here
        return h - self.history[-1]


class ListElement(Layer):
    def forward(self, h: torch.Tensor) -> torch.Tensor:
        self.means[0] = h.mean(0).detach()  # here
        return h - self.means[0]


class DictValue(Layer):
    def forward(self, h: torch.Tensor) -> torch.Tensor:
        self.table["mean"] = float(h.mean())  # here
        return h - self.table["mean"]


class Counter(Layer):
    def forward(self, h: torch.Tensor) -> torch.Tensor:
        self.steps.add_(1)  # here
        return h / (self.steps + 1)


class Flag(Layer):
    def forward(self, h: torch.Tensor) -> torch.Tensor:
        self.seen.fill_(True)  # here
        return h * self.seen


class NotPersistent(Layer):
    def forward(self, h: torch.Tensor) -> torch.Tensor:
        self.hidden.copy_(h.mean(0).detach())  # here
        return h - self.hidden


def add(total: torch.Tensor, h: torch.Tensor) -> None:
    total.add_(h.mean(0).detach())  # here, if the line of a function were told


class ByFunction(Layer):
    def forward(self, h: torch.Tensor) -> torch.Tensor:
        add(self.hidden, h)
        return h - self.hidden


class WrittenInto(Layer):
    def forward(self, h: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.mean.mul_(0.9).add_(0.1 * h.mean(0).detach())
            self.mean[0] = 0.0
        return h - self.mean


class OnlyAssigned(Layer):
    def forward(self, h: torch.Tensor) -> torch.Tensor:
        self.plain = h.detach()
        return h * 2


def require(layer: nn.Module) -> None:
    encoder = nn.Sequential(nn.Linear(4, 4), layer, nn.BatchNorm1d(4, momentum=None))
    network = Network(nn.Identity(), encoder, nn.Identity(), nn.Linear(4, 2))
    require_exchanged_state(torch.jit.script(network), network, exchanged_tensors(network), model="mine")


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (ReplacedBuffer, "buffer 'encoder.1.mean' is replaced in forward; write into it: self.mean.copy_(…)"),
        (ReplacedBySomeoneElse, "buffer 'encoder.1.mean' is replaced"),
        (PlainTensor, "attribute 'encoder.1.plain' is assigned in forward and would not be exchanged"),
        (PlainTensorInPlace, "attribute 'encoder.1.plain' changes"),
        (View, "attribute 'encoder.1.plain' changes"),
        (Number, "attribute 'encoder.1.total' is assigned"),
        (Appended, "attribute 'encoder.1.history' changes"),
        (ListElement, "attribute 'encoder.1.means' changes"),
        (DictValue, "attribute 'encoder.1.table' changes"),
        (Counter, "int64 buffer 'encoder.1.steps' changes"),
        (Flag, "bool buffer 'encoder.1.seen' changes"),
        (NotPersistent, "float32 buffer 'encoder.1.hidden' changes"),
        (ByFunction, "float32 buffer 'encoder.1.hidden' changes"),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_state_that_would_be_lost_is_refused_by_name_and_line(layer: type[nn.Module], message: str) -> None:
    lines, first = inspect.getsourcelines(add if layer is ByFunction else layer)
    line = first + next(number for number, text in enumerate(lines) if "# here" in text)
    with pytest.raises(InvalidInput, match=rf"{re.escape(message)}.* \({re.escape(__file__)}, line {line}\)"):
        require(layer())


class CopiedList(Layer):
    """As torchvision's Swin does with the sizes of its windows."""

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        sizes = self.history.copy()
        sizes[0] = 1.0
        return h * sizes[0]


@pytest.mark.parametrize(
    "layer", [WrittenInto, OnlyAssigned, CopiedList, nn.Identity], ids=lambda layer: layer.__name__
)
def test_exchanged_state_and_what_is_never_read_may_be_written(layer: type[nn.Module]) -> None:
    require(layer())


def parts(_: tuple[int, ...], classes: int) -> tuple[nn.Module, nn.Module, nn.Module]:
    return ReplacedBuffer(), nn.Identity(), nn.Linear(4, classes)


def test_a_bundle_is_not_built_from_such_a_model() -> None:
    sample = InputSpec(kind="features", shape=(4,))
    recipe = BundleRecipe(name="lost", model=f"{__name__}:parts", input=sample, target=class_target(("a", "b")))
    with pytest.raises(InvalidInput, match=r"buffer 'encoder\.mean' is replaced in forward"):
        build_bundle(recipe)
