"""The convolutional network of the zoo for series.

Legend: B samples, T steps, C channels.
"""

from __future__ import annotations

import torch
from torch import nn

from moonfed.bundle.manifest import InputSpec
from moonfed.bundle.target import TargetSpec
from moonfed.export.models.parts import Encoder

WIDTH = 64
FIRST = 32  # channels of the first convolution
SHORT = 16  # steps that the last layer reads at most
POOL = 4


class ChannelsFirst(nn.Module):
    """[B, T, C] to [B, C, T]."""

    def forward(self, series_BTC: torch.Tensor) -> torch.Tensor:
        """Swap steps and channels."""
        return series_BTC.transpose(1, 2)


def cnn1d(name: str, sample: InputSpec, target: TargetSpec, outputs: int) -> Encoder:
    """Build convolutions over time, each followed by a max-pool of 4, until at most 16 steps are left."""
    length, channels = sample.shape
    layers: list[nn.Module] = [ChannelsFirst()]
    width = FIRST
    while True:
        layers += [nn.Conv1d(channels, width, 5, padding=2), nn.ReLU(), nn.MaxPool1d(POOL, ceil_mode=True)]
        channels, width, length = width, WIDTH, (length + POOL - 1) // POOL
        if length <= SHORT:
            break
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels * length, WIDTH), nn.ReLU()), WIDTH
