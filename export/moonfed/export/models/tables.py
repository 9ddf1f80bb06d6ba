"""The network of the zoo for rows of numbers."""

from __future__ import annotations

from torch import nn

from moonfed.bundle.manifest import InputSpec
from moonfed.bundle.target import TargetSpec
from moonfed.export.models.parts import Encoder

WIDTH = 64


def mlp(name: str, sample: InputSpec, target: TargetSpec, outputs: int) -> Encoder:
    """Build two layers of 64 neurons."""
    return nn.Sequential(nn.Linear(sample.shape[0], WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU()), WIDTH
