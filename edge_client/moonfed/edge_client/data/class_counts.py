"""A device's samples for a bundle, counted by class or label."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from moonfed.bundle.manifest import Manifest
from moonfed.data.data_set import Targets
from moonfed.data.open_source import open_source
from moonfed.data.storage import chunks
from moonfed.edge_client.data.split import split_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassCounts:
    """The number of samples to train on or held out, in all and with each class or label, in the bundle's order."""

    total: int
    trained: int  # samples to train on
    held_out: int
    names: tuple[str, ...]  # none, if targets are neither classes nor labels
    counts: tuple[int, ...]


def count_samples(
    data: str, manifest: Manifest, holdout: float = 0.0, target: str = "", ignored_folders: Sequence[str] = ()
) -> ClassCounts:
    """Read the samples of `--data` for a bundle; InvalidInput names what does not fit."""
    samples = open_source(data, target, ignored_folders=ignored_folders).read(manifest.input, manifest.target)
    trained, held_out = split_rows(samples, holdout)
    counts = _counts(samples.known_targets(), manifest.target.kind, len(manifest.classes))
    return ClassCounts(
        total=len(samples),
        trained=len(samples) if trained is None else len(trained),
        held_out=len(held_out),
        names=manifest.classes if counts else (),
        counts=counts,
    )


def _counts(targets: Targets, kind: str, names: int) -> tuple[int, ...]:
    """Count the samples of each class, with each label, or with a pixel of each class."""
    if kind == "class":
        return tuple(map(int, np.bincount(targets, minlength=names)))
    if kind == "labels":
        return tuple(map(int, (targets == 1).sum(axis=0)))
    if kind == "mask":
        found = [[(part == place).any(axis=(1, 2)).sum() for place in range(names)] for part in chunks(targets)]
        return tuple(map(int, np.sum(found, axis=0)))
    return ()
