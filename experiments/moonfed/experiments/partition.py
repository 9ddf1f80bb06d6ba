"""Partitioning of a data set over devices, evenly or as unevenly as in real fleets."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from moonfed.data.data_set import DataSet, Labels
from moonfed.errors import InvalidInput
from moonfed.experiments.datasets import SplitDataSet
from moonfed.experiments.strata import strata, stratum_names, stratum_word
from moonfed.validate import require_one_of, require_positive, require_whole

Indices = npt.NDArray[np.int64]
MINIMUM_SAMPLES = 10  # every device gets at least these many (MOON's public code)
Kind = Literal["dirichlet", "dirichlet-moon", "dirichlet-equal", "dirichlet-mix", "dirichlet-sizes", "iid"]
KINDS: tuple[Kind, ...] = get_args(Kind)
WITHOUT_CLASSES: tuple[Kind, ...] = ("dirichlet-sizes", "iid")
DRAWS = 1000  # draws that leave a device too few samples before giving up


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSettings:
    """Settings of a split. `beta` is the Dirichlet concentration: small means uneven; `iid` ignores it.

    `dirichlet`: each class is distributed unevenly (MOON). `dirichlet-moon`: the same, drawn as MOON's authors draw it,
    so that a seed gives exactly their parties. `dirichlet-equal`: the same among devices of equal size (FedSSC).
    `dirichlet-mix`: devices of equal size, each with a class mix drawn from Dir(beta); milder. The tenths of a
    regression's values are treated as classes. `dirichlet-sizes`: random samples, of which each device has a share
    drawn from Dir(beta).
    """

    kind: Kind = "dirichlet"
    devices: int = 10
    beta: float = 0.5
    seed: int = 0

    def __post_init__(self) -> None:
        require_one_of("partition", self.kind, KINDS)
        require_whole("devices", self.devices, 1)
        require_positive("beta", self.beta)
        require_whole("seed", self.seed, 0)


def split(samples: DataSet, settings: PartitionSettings) -> list[Indices]:
    """Return the sample indices of each device: see `partition`; InvalidInput for targets that have no classes."""
    kind = samples.target.kind
    if kind not in ("class", "values") and settings.kind not in WITHOUT_CLASSES:
        raise InvalidInput(
            f"partition is {settings.kind!r}, which distributes classes or values, and the samples have "
            f"{samples.target.describe()}; it must be {' or '.join(map(repr, WITHOUT_CLASSES))}",
            field="partition",
            value=settings.kind,
        )
    return partition(strata(samples), settings)


def partition(labels: Labels, settings: PartitionSettings) -> list[Indices]:
    """Return the sample indices of each device: disjoint, and together all samples.

    Raises InvalidInput where there are too few samples for that many devices.
    """
    if len(labels) < MINIMUM_SAMPLES * settings.devices:
        most = len(labels) // MINIMUM_SAMPLES
        raise InvalidInput(
            field="devices", value=settings.devices, rest=f"; {len(labels)} samples are enough for at most {most}"
        )
    generator = np.random.default_rng(settings.seed)
    if settings.kind == "iid":
        return [np.sort(part) for part in np.array_split(generator.permutation(len(labels)), settings.devices)]
    if settings.kind == "dirichlet-equal":
        return _draw_equal(labels, settings, generator)
    if settings.kind == "dirichlet-mix":
        return _draw_mixes(labels, settings, generator)
    if settings.kind == "dirichlet-sizes":
        labels = np.zeros(len(labels), np.int64)
    legacy = np.random.RandomState(settings.seed % 2**32)  # it takes no larger seed
    classes = _by_class(labels)
    for _ in range(DRAWS):
        if settings.kind == "dirichlet-moon":
            parts = _draw_as_moon(classes, settings, legacy)
        else:
            parts = _draw_dirichlet(classes, settings, generator)
        if parts:
            return parts
    raise InvalidInput(
        field="beta",
        value=settings.beta,
        rest=(
            f"; in each of {DRAWS} draws, one of the {settings.devices} devices had fewer than "
            f"{MINIMUM_SAMPLES} samples: choose a larger beta or fewer devices"
        ),
    )


def _by_class(labels: Labels) -> list[Indices]:
    """Return each class's samples, in order."""
    order = np.argsort(labels, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(labels[order])) + 1)


def _draw_dirichlet(
    classes: Sequence[Indices], settings: PartitionSettings, generator: np.random.Generator
) -> list[Indices]:
    """Draw once as in Li et al. 2021, section 4.1: device j gets a share p_j of each class, p ~ Dir(beta).

    A device that already holds its N-th of all the data gets none of the class (the authors' public code).
    """
    dealt = list[tuple[Indices, Indices]]()
    counts, samples = np.zeros(settings.devices, dtype=np.int64), sum(map(len, classes))
    for ordered in classes:
        members = generator.permutation(ordered)
        shares = generator.dirichlet(np.full(settings.devices, settings.beta))
        shares = np.where(counts < samples / settings.devices, shares, 0.0)
        total = shares.sum()
        if total <= 0:  # all the open devices drew a share of exactly zero
            continue
        ends = (np.cumsum(shares / total)[:-1] * len(members)).astype(np.int64)
        dealt.append((members, ends))
        counts += np.diff(ends, prepend=0, append=len(members))
    if counts.sum() < samples:
        return []  # no device can take a class: draw again
    return _parts(dealt, counts)


def _parts(dealt: Sequence[tuple[Indices, Indices]], counts: Indices) -> list[Indices]:
    """Return each device's samples; none if a device has too few, to draw again.

    `dealt`: each class's samples, and where the pieces of all but the last device end. `counts`: the devices' samples.
    """
    if counts.min() < MINIMUM_SAMPLES:
        return []
    pieces = [np.split(members, ends) for members, ends in dealt]
    return [np.sort(np.concatenate(held)) for held in zip(*pieces, strict=True)]


def _draw_as_moon(
    classes: Sequence[Indices], settings: PartitionSettings, generator: np.random.RandomState
) -> list[Indices]:
    """Draw once as MOON's authors do, whose stream is the seeded legacy generator's (their `init_seed` is 0).

    The result depends on the order of the draws: for each class first the order of its samples, then the shares. Table
    6 of the paper follows from it exactly.
    """
    dealt = list[tuple[Indices, Indices]]()
    counts, samples = np.zeros(settings.devices, dtype=np.int64), sum(map(len, classes))
    for ordered in classes:
        members = ordered.copy()
        generator.shuffle(members)
        shares = generator.dirichlet(np.repeat(settings.beta, settings.devices))
        shares = shares * (counts < samples / settings.devices)
        if not shares.sum() > 0:  # the open devices drew shares of exactly zero, or a tiny beta gave no numbers
            return []  # draw again
        ends = (np.cumsum(shares / shares.sum()) * len(members)).astype(np.int64)[:-1]
        dealt.append((members, ends))
        counts += np.diff(ends, prepend=0, append=len(members))
    return _parts(dealt, counts)


def _draw_equal(labels: Labels, settings: PartitionSettings, generator: np.random.Generator) -> list[Indices]:
    """Draw devices of equal size (or one sample more), among which each class is distributed unevenly.

    FedSSC prints that p ~ Dir(beta) for each class, as in MOON, and that all devices have the same number of samples.
    How both can hold is not stated. Our reading: a device that is full takes no more, and the others share the rest of
    the class in the same proportions. The classes come in random order, since the last ones find many devices full.
    """
    left = np.asarray([len(part) for part in np.array_split(labels, settings.devices)])
    held: list[list[Indices]] = [[] for _ in range(settings.devices)]
    for label in generator.permutation(np.unique(labels)):
        members = generator.permutation(np.flatnonzero(labels == label))
        dealt = _deal(len(members), generator.dirichlet(np.full(settings.devices, settings.beta)), left)
        for device, piece in enumerate(np.split(members, np.cumsum(dealt)[:-1])):
            held[device].append(piece)
        left = left - dealt
    return [np.sort(np.concatenate(pieces)) for pieces in held]


def _deal(samples: int, shares: npt.NDArray[np.float64], left: Indices) -> Indices:
    """Distribute samples to devices by their shares, within each device's remaining capacity."""
    dealt = np.zeros_like(left)
    while rest := samples - int(dealt.sum()):
        room = left - dealt
        weights = shares * (room > 0)
        weights = weights if weights.sum() > 0 else room.astype(np.float64)
        ends = np.rint(np.cumsum(weights) / weights.sum() * rest).astype(np.int64)
        dealt = dealt + np.minimum(np.diff(ends, prepend=0), room)
    return dealt


def _draw_mixes(labels: Labels, settings: PartitionSettings, generator: np.random.Generator) -> list[Indices]:
    """Draw devices of equal size (or one sample more), whose class mixes are draws of Dir(beta).

    The devices take turns in random order, each turn one sample of a class drawn from the device's mix. A class that is
    used up is left out of the draw; a device whose classes are all used up takes what is left.
    """
    members = [generator.permutation(ordered) for ordered in _by_class(labels)]
    left = np.asarray([len(indices) for indices in members])
    mixes = generator.dirichlet(np.full(len(members), settings.beta), size=settings.devices)
    turns = generator.permutation(np.arange(len(labels)) % settings.devices)
    held: list[list[int]] = [[] for _ in range(settings.devices)]
    open_mixes = [_ends(mix * (left > 0)) for mix in mixes]
    for device, chance in zip(turns.tolist(), generator.random(len(turns)).tolist(), strict=True):
        ends = open_mixes[device] or _ends(left)
        label = min(bisect_right(ends, chance * ends[-1]), len(ends) - 1)
        while left[label] == 0:  # the draw hit the end of the last class with samples
            label -= 1
        left[label] -= 1
        held[device].append(int(members[label][left[label]]))
        if left[label] == 0:
            open_mixes = [_ends(mix * (left > 0)) for mix in mixes]
    return [np.sort(np.asarray(indices, dtype=np.int64)) for indices in held]


def _ends(weights: npt.NDArray[np.float64] | npt.NDArray[np.int64]) -> list[float]:
    """Return the cumulative weights; nothing if all are zero."""
    ends: list[float] = np.cumsum(weights).tolist()
    return ends if weights.sum() > 0 else []


def count_samples(samples: DataSet, parts: list[Indices]) -> npt.NDArray[np.int64]:
    """Count samples by device and class, or tenth of the values; else by device alone [devices, 1]."""
    return class_counts(strata(samples), parts, len(stratum_names(samples.target)))


def class_counts(labels: Labels, parts: list[Indices], classes: int) -> npt.NDArray[np.int64]:
    """Count samples by device and class [devices, classes]."""
    return np.stack([np.bincount(labels[part], minlength=classes) for part in parts])


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenPartition:
    """The parts of a data set on disk."""

    classes: tuple[str, ...]  # or other groups of samples: see `moonfed.experiments.strata`
    counts: npt.NDArray[np.int64]  # samples by device and class
    devices: tuple[Path, ...]
    test: Path
    tested: int  # samples for testing
    groups: str = "class"  # what `classes` are: see `stratum_word`

    def describe(self) -> dict[str, Any]:
        """Return the counts as JSON values."""
        if self.groups == "class":
            return {"classes": list(self.classes), "samples_by_device_and_class": self.counts.tolist()}
        return {"samples_by_device": self.counts.sum(axis=1).tolist()}


def write_partition(data: SplitDataSet, settings: PartitionSettings, directory: Path) -> WrittenPartition:
    """Write device-1.npz … device-N.npz, test.npz and partition.json.

    Raises InvalidInput for a directory that has more devices' files, which would stay and belong to another split.
    """
    parts = split(data.train, settings)
    ours = {f"device-{number}.npz" for number in range(1, len(parts) + 1)}
    if others := sorted(path.name for path in directory.glob("device-*.npz") if path.name not in ours):
        raise InvalidInput(
            field="output",
            value=directory,
            rest=f", which holds {others[0]} of a split over other devices; name a new directory",
        )
    directory.mkdir(parents=True, exist_ok=True)
    for number, part in enumerate(parts, start=1):
        save_npz(directory / f"device-{number}.npz", data.train.take(part))
    save_npz(directory / "test.npz", data.test)
    counts = count_samples(data.train, parts)
    written = WrittenPartition(
        classes=stratum_names(data.target),
        counts=counts,
        devices=tuple(directory / f"device-{number}.npz" for number in range(1, len(parts) + 1)),
        test=directory / "test.npz",
        tested=len(data.test),
        groups=stratum_word(data.target),
    )
    description = {
        "dataset": data.name,
        "input_shape": list(data.train.inputs.shape[1:]),
        "settings": asdict(settings),
        **written.describe(),
    }
    (directory / "partition.json").write_text(json.dumps(description, indent=1) + "\n")
    return written


def save_npz(path: Path, samples: DataSet) -> None:
    """Write samples as devices read them; classes are called `labels`."""
    if samples.targets is None or samples.targets.size == 0:
        np.savez(path, inputs=samples.inputs)
    elif samples.target.kind == "class":
        np.savez(path, inputs=samples.inputs, labels=samples.targets)
    else:
        np.savez(path, inputs=samples.inputs, targets=samples.targets)
