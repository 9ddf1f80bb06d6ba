"""The autoencoder of the zoo: its representation is the code, its output the sample after preprocessing."""

from __future__ import annotations

import torch
from torch import nn

from moonfed.bundle.manifest import InputSpec
from moonfed.bundle.target import TargetSpec
from moonfed.export.models.parts import Parts
from moonfed.export.resizing import resized

CODE = 32  # numbers at most
HIDDEN = 128
CHANNELS = (16, 32, 64)  # after each halving of an image's sides; the last again for further ones
SMALL = 8  # pixels of a side that a linear layer encodes


class Crop(nn.Module):
    """The upper left part of maps [B, C, H, W]."""

    def __init__(self, height: int, width: int) -> None:
        super().__init__()
        self.height, self.width = height, width

    def forward(self, maps_BCHW: torch.Tensor) -> torch.Tensor:
        """Return the part."""
        return maps_BCHW[:, :, : self.height, : self.width]


def autoencoder(name: str, sample: InputSpec, target: TargetSpec, outputs: int) -> Parts:
    """Build an encoder, no head, and a decoder to all numbers of a sample."""
    code = min(CODE, max(1, outputs // (4 if sample.kind == "features" else 16)))  # neighbours say much the same
    encoder, decoder = _convolutions(sample, code) if sample.kind == "image" else _layers(outputs, code)
    return encoder, nn.Identity(), decoder


def _layers(numbers: int, code: int) -> tuple[nn.Module, nn.Module]:
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(numbers, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, code))
    return encoder, nn.Sequential(nn.Linear(code, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, numbers))


def _convolutions(sample: InputSpec, code: int) -> tuple[nn.Module, nn.Module]:
    sides = [(resized(sample.shape[0]), resized(sample.shape[1]))]
    while max(sides[-1]) > SMALL:
        sides.append(((sides[-1][0] + 1) // 2, (sides[-1][1] + 1) // 2))
    halvings = len(sides) - 1
    channels = [sample.shape[2], *(CHANNELS[min(level, len(CHANNELS) - 1)] for level in range(halvings))]
    down: list[nn.Module] = []
    up: list[nn.Module] = []
    for level in range(halvings):
        down += [nn.Conv2d(channels[level], channels[level + 1], 3, stride=2, padding=1), nn.ReLU()]
        last = [nn.ReLU()] if level else []
        up = [nn.ConvTranspose2d(channels[level + 1], channels[level], 2, stride=2), Crop(*sides[level]), *last, *up]
    smallest = (channels[-1], *sides[-1])
    numbers = smallest[0] * smallest[1] * smallest[2]
    encoder = nn.Sequential(*down, nn.Flatten(), nn.Linear(numbers, code))
    return encoder, nn.Sequential(nn.Linear(code, numbers), nn.ReLU(), nn.Unflatten(1, smallest), *up)
