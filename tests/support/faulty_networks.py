"""Networks that no bundle can hold, and one whose shapes follow from its first input."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

Parts = tuple[nn.Module, nn.Module, nn.Module]


class _Sign(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return torch.sign(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient


class _Binary(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = _Sign.apply(x)  # type: ignore[no-untyped-call]
        return found


class _WrongKey(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * {"width": 1.0}["scale"]


class _AlwaysDropout(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.dropout(x, 0.3)


class _ScriptedOtherwise(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1.0 if torch.jit.is_scripting() else x  # type: ignore[attr-defined]


class _Recurrent(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.RNN(width, 8, batch_first=True), nn.GRUCell(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        last: torch.Tensor = self.second(self.first(x.flatten(2))[0][:, -1])
        return last


def _flat(shape: tuple[int, ...], classes: int, *layers: nn.Module) -> Parts:
    width = int(torch.Size(shape).numel())
    return nn.Sequential(nn.Flatten(), nn.Linear(width, 8), *layers), nn.Identity(), nn.Linear(8, classes)


def calls_python(shape: tuple[int, ...], classes: int) -> Parts:
    return _flat(shape, classes, _Binary())


def wrong_key(shape: tuple[int, ...], classes: int) -> Parts:
    return _flat(shape, classes, _WrongKey())


def always_random(shape: tuple[int, ...], classes: int) -> Parts:
    return _flat(shape, classes, _AlwaysDropout())


def scripted_otherwise(shape: tuple[int, ...], classes: int) -> Parts:
    return _flat(shape, classes, _ScriptedOtherwise())


def old_weight_norm(shape: tuple[int, ...], classes: int) -> Parts:
    return _flat(shape, classes, nn.utils.weight_norm(nn.Linear(8, 8)))


def recurrent(shape: tuple[int, ...], classes: int) -> Parts:
    return _Recurrent(shape[1] * shape[0]), nn.Identity(), nn.Linear(8, classes)


def lazy(shape: tuple[int, ...], classes: int) -> Parts:
    return (
        nn.Sequential(nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d(), nn.Flatten(), nn.LazyLinear(8)),
        nn.Identity(),
        nn.Linear(8, classes),
    )
