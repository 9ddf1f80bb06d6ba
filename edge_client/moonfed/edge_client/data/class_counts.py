"""A device's samples for a bundle, counted by class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from moonfed.bundle.manifest import Manifest
from moonfed.data.open_source import open_source
from moonfed.edge_client.data.split import split_rows


@dataclass(frozen=True, slots=True)
class ClassCounts:
    """Samples of each class, in the bundle's order, and how many of all are held out."""

    names: tuple[str, ...]
    counts: tuple[int, ...]
    held_out: int

    @property
    def total(self) -> int:
        """All samples."""
        return sum(self.counts)

    @property
    def trained(self) -> int:
        """Samples to train on."""
        return self.total - self.held_out


def count_samples(
    data: str, manifest: Manifest, holdout: float = 0.0, target: str = "", ignored_folders: Sequence[str] = ()
) -> ClassCounts:
    """Read the samples of `--data` for a bundle; InvalidInput names what does not fit."""
    samples = open_source(data, target, ignored_folders=ignored_folders).read(manifest.input, manifest.target)
    held_out = len(split_rows(samples, holdout)[1])
    if manifest.target.kind != "class":
        return ClassCounts((manifest.target.noun,), (len(samples),), held_out)
    counts = np.bincount(samples.known_targets(), minlength=len(manifest.classes))
    return ClassCounts(manifest.classes, tuple(map(int, counts)), held_out)
