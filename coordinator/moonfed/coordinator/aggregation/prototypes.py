"""FedSSC's shared prototypes: for every class the mean of some devices' class means. Hu et al., FedSSC, section III.

In every round k devices are drawn for each class among those that share it (all, if there are fewer, or if k is 0);
their means count alike. A class that nobody shares in a round has no prototype.
Legend: C classes, D width of a representation.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import numpy as np

from moonfed.coordinator.aggregation.closed_round import ClosedRound
from moonfed.coordinator.aggregation.model_files import Slice, read, writers
from moonfed.coordinator.aggregation.robust.config import Reducer
from moonfed.coordinator.aggregation.robust.incident_record import Incident
from moonfed.coordinator.aggregation.robust.incidents import Noted, gravest
from moonfed.coordinator.aggregation.robust.vectors import longest, reduce_rows
from moonfed.manifest import CLASS_MEANS, PROTOTYPES
from moonfed.tensors import Vector, model_size, open_model, split

COUNTS, MEANS, PRESENT = "counts", "means", "present"  # the tensors' names; `prototypes` is the fourth
CLIPPED = "were scaled down"
OBJECTED: Mapping[Reducer, str] = {
    "mean": "",  # it has nothing against anybody
    "median": "are far from the median",
    "trimmed_mean": "are far from the trimmed mean",
    "multi_krum": "were left out by multi_krum",
    "geometric_median": "are far from the geometric median",
}
CLASSES_SHOWN = 5


def next_prototypes(closed: ClosedRound, path: Path) -> tuple[Incident, ...]:
    """Writes the next prototypes [C, D], and which classes have one [C], to that path; what robust aggregation did.

    A class that fewer devices share than the run's reducer needs has no prototype in this round.
    """
    specs = closed.manifest.downlink[PROTOTYPES]
    shapes = {spec.name: spec.shape for spec in specs}
    tensors = {PRESENT: np.zeros(shapes[PRESENT]), PROTOTYPES: np.zeros(shapes[PROTOTYPES])}
    done = {told: defaultdict[str, list[str]](list) for told in (CLIPPED, *OBJECTED.values())}
    for class_, sharers in enumerate(_sharers(closed)):
        source = draw(closed, class_, sharers)
        drawn = [device for device in sharers if device in source]
        if not drawn or len(drawn) < closed.robust.updates_needed:
            continue
        rows, chosen = _rows(closed, frozenset(sharers), class_), [device in source for device in sharers]
        reduced = reduce_rows(closed.robust, rows[chosen], longest(closed.robust, rows))
        tensors[PRESENT][class_], tensors[PROTOTYPES][class_] = 1.0, reduced.result
        for told, positions in ((CLIPPED, reduced.clipped), (OBJECTED[closed.robust.reducer], reduced.objected)):
            for position in positions:
                done[told][drawn[position]].append(closed.manifest.classes[class_])
    with writers({PROTOTYPES: path}, specs) as files:
        for spec in specs:
            files[PROTOTYPES].write(tensors[spec.name].ravel())
    return gravest(
        [
            Noted(
                incident=Incident(device=device, description=f"its means of {_listed(found)} {told}"),
                gravity=len(found),
            )
            for told, by_device in done.items()
            for device, found in by_device.items()
        ]
    )


def _rows(closed: ClosedRound, devices: Collection[str], class_: int) -> Slice:
    """These devices' means of a class, [N, D], in the order of the contributions."""
    specs = closed.manifest.uplink[CLASS_MEANS]
    before = sum(spec.size for spec in specs if spec.name < MEANS)
    width = next(spec.shape[1] for spec in specs if spec.name == MEANS)
    start, size = before + class_ * width, model_size(specs)
    files = [contribution.files[CLASS_MEANS] for contribution in closed.contributions if contribution.device in devices]
    return np.stack([read(file, size, start, start + width) for file in files]).astype(np.float64)


def _listed(classes: Sequence[str]) -> str:
    shown = ", ".join(classes[:CLASSES_SHOWN])
    more = f" and {len(classes) - CLASSES_SHOWN} more" if len(classes) > CLASSES_SHOWN else ""
    return f"{'class' if len(classes) == 1 else 'classes'} {shown}{more}"


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
