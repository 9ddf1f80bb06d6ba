"""FedSSC's shared prototypes: for every class the mean of some devices' class means. Hu et al., FedSSC, section III.

In every round k devices are drawn for each class among those that share it (all, if there are fewer, or if k is 0);
their means count alike. A class that nobody shares in a round has no prototype.
Legend: C classes, D width of a representation.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from pathlib import Path

import numpy as np

from coordinator.aggregation.closed_round import ClosedRound
from coordinator.aggregation.slices import writers
from moonfed.manifest import CLASS_MEANS, PROTOTYPES
from moonfed.tensors import Vector, open_model, split

COUNTS, MEANS, PRESENT = "counts", "means", "present"  # the tensors' names; `prototypes` is the fourth


def next_prototypes(closed: ClosedRound, path: Path) -> None:
    """Writes the next prototypes [C, D], and which classes have one [C], to that path."""
    sharers = _sharers(closed)
    drawn = [draw(closed, class_, devices) for class_, devices in enumerate(sharers)]
    specs = closed.manifest.downlink[PROTOTYPES]
    shapes = {spec.name: spec.shape for spec in specs}
    sums = np.zeros(shapes[PROTOTYPES])
    for contribution in closed.contributions:
        classes = [class_ for class_, devices in enumerate(drawn) if contribution.device in devices]
        if classes:
            sums[classes] += _class_means(closed, contribution.files[CLASS_MEANS])[MEANS][classes]
    counted = np.array([len(devices) for devices in drawn], np.float64)
    tensors = {PRESENT: np.minimum(counted, 1), PROTOTYPES: sums / np.maximum(counted, 1)[:, None]}
    with writers({PROTOTYPES: path}, specs) as files:
        for spec in specs:
            files[PROTOTYPES].write(tensors[spec.name].ravel())


def draw(closed: ClosedRound, class_: int, sharers: Collection[str]) -> frozenset[str]:
    """The devices whose means make a class's prototype: the same for the same seed, round, class and sharers."""

    def rank(device: str) -> bytes:
        return hashlib.sha256(f"{closed.seed}/{closed.round}/prototype {class_}/{device}".encode()).digest()

    k = closed.manifest.prototype_devices or len(sharers)
    return frozenset(sorted(sharers, key=rank)[:k])


def _sharers(closed: ClosedRound) -> list[list[str]]:
    """For every class the devices that share its mean."""
    sharers: list[list[str]] = [[] for _ in closed.manifest.classes]
    for contribution in closed.contributions:
        for class_ in np.flatnonzero(_class_means(closed, contribution.files[CLASS_MEANS])[COUNTS]):
            sharers[class_].append(contribution.device)
    return sharers


def _class_means(closed: ClosedRound, path: Path) -> dict[str, Vector]:
    specs = closed.manifest.uplink[CLASS_MEANS]
    return split(open_model(path, specs), specs)
