"""FedSSC's shared prototypes: for every class the mean of some devices' class means. Hu et al., FedSSC, section III.

In every round k devices are drawn for each class among those that share it (all, if there are fewer, or if k is 0);
their means count equally. A class that no device shares in a round has no prototype.
Legend: C classes, D width of a representation.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np

from moonfed.blobs.tensors import Vector, model_size, open_model, split
from moonfed.bundle.manifest import CLASS_MEANS, PROTOTYPES
from moonfed.coordinator.aggregation.closed_round import ClosedRound
from moonfed.coordinator.aggregation.model_files import read_elements, writers
from moonfed.coordinator.aggregation.robust.config import build_reducer
from moonfed.coordinator.aggregation.robust.incident import Incident
from moonfed.coordinator.aggregation.robust.incidents import RankedIncident, most_severe
from moonfed.coordinator.aggregation.robust.vectors import length_bounds, reduce_vectors
from moonfed.server_rules.server_rule import Float64Array

MASK, MEANS, PRESENT = "mask", "means", "present"  # the tensors' names; `prototypes` is the fourth
CLASSES_LISTED = 5
CLIPPED = "were scaled down"


def write_next_prototypes(closed: ClosedRound, path: Path) -> tuple[Incident, ...]:
    """Write the next prototypes [C, D], and a mask [C] of the classes that have one, to a path; return the incidents.

    A class that fewer devices share than the reducer needs has no prototype in this round.
    """
    specs, reducer = closed.manifest.downlink[PROTOTYPES], build_reducer(closed.settings)
    shapes = {spec.name: spec.shape for spec in specs}
    tensors = {PRESENT: np.zeros(shapes[PRESENT]), PROTOTYPES: np.zeros(shapes[PROTOTYPES])}
    findings = {finding: defaultdict[str, list[str]](list) for finding in (CLIPPED, reducer.finding)}
    for class_, sharers in enumerate(_sharers(closed)):
        chosen = draw(closed, class_, sharers)
        drawn = [device for device in sharers if device in chosen]
        if not drawn or len(drawn) < reducer.updates_needed:
            continue
        means = _class_mean_vectors(closed, frozenset(sharers), class_)
        bounds = length_bounds(means, closed.settings.clip_factor)
        reduced = reduce_vectors(reducer, means[[device in chosen for device in sharers]], bounds)
        tensors[PRESENT][class_], tensors[PROTOTYPES][class_] = 1.0, reduced.result
        outliers = [outlier.position for outlier in reduced.outliers]
        for finding, positions in ((CLIPPED, reduced.clipped), (reducer.finding, outliers)):
            for position in positions:
                findings[finding][drawn[position]].append(closed.manifest.classes[class_])
    with writers({PROTOTYPES: path}, specs) as files:
        for spec in specs:
            files[PROTOTYPES].write(tensors[spec.name].ravel())
    return most_severe(
        [
            RankedIncident(
                incident=Incident(
                    device=device,
                    description=f"its means of {_list_classes(classes)} {finding}",
                    clipped=finding == CLIPPED,
                ),
                severity=len(classes),
            )
            for finding, by_device in findings.items()
            for device, classes in by_device.items()
        ]
    )


def _class_mean_vectors(closed: ClosedRound, devices: Collection[str], class_: int) -> Float64Array:
    """Read these devices' means of a class, [N, D], in the order of the contributions."""
    specs = closed.manifest.uplink[CLASS_MEANS]
    before = sum(spec.size for spec in specs if spec.name < MEANS)
    width = next(spec.shape[1] for spec in specs if spec.name == MEANS)
    start, size = before + class_ * width, model_size(specs)
    files = [contribution.files[CLASS_MEANS] for contribution in closed.contributions if contribution.device in devices]
    return np.stack([read_elements(file, size, start, start + width) for file in files]).astype(np.float64)


def _list_classes(classes: Sequence[str]) -> str:
    shown = ", ".join(classes[:CLASSES_LISTED])
    more = f" and {len(classes) - CLASSES_LISTED} more" if len(classes) > CLASSES_LISTED else ""
    return f"{'class' if len(classes) == 1 else 'classes'} {shown}{more}"


def draw(closed: ClosedRound, class_: int, sharers: Collection[str]) -> frozenset[str]:
    """Draw the devices whose means make a class's prototype: a function of secret, round, class and sharers."""
    k = closed.manifest.prototype_devices or len(sharers)
    return frozenset(closed.draw.order(f"{closed.round}/prototype {class_}", sharers)[:k])


def _sharers(closed: ClosedRound) -> list[list[str]]:
    """Return the devices that share the mean of each class."""
    sharers: list[list[str]] = [[] for _ in closed.manifest.classes]
    for contribution in closed.contributions:
        for class_ in np.flatnonzero(_class_means(closed, contribution.files[CLASS_MEANS])[MASK]):
            sharers[class_].append(contribution.device)
    return sharers


def _class_means(closed: ClosedRound, path: Path) -> dict[str, Vector]:
    specs = closed.manifest.uplink[CLASS_MEANS]
    return split(open_model(path, specs), specs)
