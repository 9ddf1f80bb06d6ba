"""Custom models, such as `tests.support.residual_network:small_resnet`: small, with BatchNorm and shortcuts."""

from __future__ import annotations

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, channels: int, outputs: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, outputs, 3, stride=2, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Conv2d(channels, outputs, 1, stride=2, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.relu(self.first_norm(self.first(x)))
        return torch.relu(self.second_norm(self.second(h)) + self.shortcut(x))


def small_resnet(shape: tuple[int, ...], classes: int) -> tuple[nn.Module, nn.Module, nn.Module]:
    encoder = nn.Sequential(
        nn.Conv2d(shape[2], 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        Block(8, 16),
        Block(16, 32),
        nn.AdaptiveAvgPool2d(1),
    )
    head = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 32))
    return encoder, head, nn.Linear(32, classes)


def tiny(shape: tuple[int, ...], classes: int) -> tuple[nn.Module, nn.Module, nn.Module]:
    encoder = nn.Sequential(nn.Conv2d(shape[2], 4, 8, stride=8), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
    return encoder, nn.Linear(4, 8), nn.Linear(8, classes)


def with_unused_layer(shape: tuple[int, ...], classes: int) -> tuple[nn.Module, nn.Module, nn.Module]:
    """A shortcut that is never used, so its weights get no gradient."""

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used = nn.Linear(shape[0], 16)
            self.unused = nn.Linear(shape[0], 16)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.tanh(self.used(x))

    return Encoder(), nn.Linear(16, 8), nn.Linear(8, classes)


def rejects_the_size(shape: tuple[int, ...], classes: int) -> tuple[nn.Module, nn.Module, nn.Module]:
    return nn.Sequential(nn.Flatten(), nn.Linear(7, 8)), nn.Linear(8, 8), nn.Linear(8, classes)


def returns_a_tuple(shape: tuple[int, ...], classes: int) -> tuple[nn.Module, nn.Module, nn.Module]:
    class Encoder(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return x, x

    return Encoder(), nn.Identity(), nn.Linear(8, classes)


def not_three_modules(shape: tuple[int, ...], classes: int) -> nn.Module:
    return nn.Linear(shape[0], classes)
