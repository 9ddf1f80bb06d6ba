"""Masks of Fashion-MNIST's garments: a pixel above 0 has its garment's class, any other is background.

    python fashion_masks.py FOLDER SEED [SAMPLES PARTIES]    # FOLDER: of torchvision's FashionMNIST

It writes masks-SEED.npz, in which `party` says which of the parties, five by default, has a sample: Dirichlet draws of
the garments with beta 0.5, as in MOON's experiments.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from moonfed.experiments.datasets import load_dataset
from moonfed.experiments.partition import PartitionSettings, partition

SAMPLES = "4000"
PARTIES = "5"
BETA = 0.5


def main(folder: str, seed: str, samples: str = SAMPLES, parties: str = PARTIES) -> None:
    """Write the samples of a seed."""
    generator = np.random.default_rng(int(seed))
    train = load_dataset("fashion-mnist", Path(folder)).train
    rows = np.sort(generator.permutation(len(train))[: int(samples)])
    images, garments = train.inputs[rows], train.labels[rows]
    masks = np.where(images[..., 0] > 0, garments[:, None, None] + 1, 0).astype(np.uint8)
    party = np.zeros(len(rows), np.int64)
    settings = PartitionSettings(devices=int(parties), beta=BETA, seed=int(seed))
    for number, part in enumerate(partition(garments, settings)):
        party[part] = number
    np.savez_compressed(f"masks-{seed}.npz", inputs=images, targets=masks, party=party)


class Encoder(nn.Module):
    """Maps [B, 8, 28, 28], [B, 16, 14, 14] and [B, 32, 7, 7]."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.second, self.third = block(channels, 8), block(8, 16), block(16, 32)
        self.pool = nn.MaxPool2d(2)

    def forward(self, pixels: Tensor) -> list[Tensor]:
        """Return the maps from fine to coarse."""
        fine = self.first(pixels)
        middle = self.second(self.pool(fine))
        return [fine, middle, self.third(self.pool(middle))]


class Pooled(nn.Module):
    """The representation: the coarse maps' means, through a projection head."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 32))

    def forward(self, maps: list[Tensor]) -> Tensor:
        """Return z [B, 32]."""
        z: Tensor = self.head(maps[2].mean(dim=[2, 3]))
        return z


class Decoder(nn.Module):
    """Maps of the classes, from coarse to fine, each joined with the encoder's."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.third, self.second = nn.ConvTranspose2d(32, 16, 2, stride=2), nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.middle, self.fine, self.last = block(32, 16), block(16, 8), nn.Conv2d(8, classes, 1)

    def forward(self, maps: list[Tensor]) -> Tensor:
        """Return the classes' logits [B, C, 28, 28]."""
        middle = self.middle(torch.cat([maps[1], self.third(maps[2])], dim=1))
        logits: Tensor = self.last(self.fine(torch.cat([maps[0], self.second(middle)], dim=1)))
        return logits


def block(inputs: int, outputs: int) -> nn.Sequential:
    """Two convolutions."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU(), nn.Conv2d(outputs, outputs, 3, padding=1), nn.ReLU()
    )


def build(shape: tuple[int, ...], outputs: int) -> tuple[nn.Module, nn.Module, nn.Module]:
    """Return a small U-Net's encoder, projection head and decoder."""
    return Encoder(shape[2]), Pooled(), Decoder(outputs)


if __name__ == "__main__":
    main(*sys.argv[1:])
