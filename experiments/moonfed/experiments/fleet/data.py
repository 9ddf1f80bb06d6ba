"""The samples of all parties in one place: arrays in order of the parties, which any number of workers map.

However many parties and workers there are, the pages are in memory once. A party's samples are one slice, not a copy.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from moonfed.blobs.store import ref_of_bytes, ref_of_file
from moonfed.data.data_set import Inputs, Targets
from moonfed.experiments.datasets import SplitDataSet
from moonfed.experiments.partition import Indices, count_samples
from moonfed.files import new_directory

COUNTS_FILE = "counts.json"
Counts = npt.NDArray[np.int64]  # samples by party and class, or another group: see `moonfed.experiments.strata`


def write_parts(data: SplitDataSet, parts: Sequence[Indices], directory: Path) -> None:
    """Write the parties' samples, the test set and the counts; the directory appears complete or not at all."""
    counts = count_samples(data.train, list(parts))
    order = np.concatenate(list(parts))
    with new_directory(directory) as temporary:
        inputs = np.lib.format.open_memmap(
            temporary / "train-inputs.npy",
            mode="w+",
            dtype=data.train.inputs.dtype,
            shape=(len(order), *data.train.inputs.shape[1:]),
        )
        start = 0
        for part in parts:  # never the whole data set twice in memory
            inputs[start : start + len(part)] = data.train.inputs[part]
            start += len(part)
        inputs.flush()
        np.save(temporary / "train-targets.npy", data.train.known_targets()[order])
        np.save(temporary / "test-inputs.npy", np.ascontiguousarray(data.test.inputs))
        np.save(temporary / "test-targets.npy", data.test.known_targets())
        (temporary / COUNTS_FILE).write_text(json.dumps(counts.tolist()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """The samples of each party: their numbers, and a sha256 of their positions in the data set."""

    sha256: str
    sizes: tuple[int, ...]


def describe_split(parts: Sequence[Indices]) -> Split:
    """Describe a split; the digest is of every part's length and positions as little-endian 64-bit integers."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(np.concatenate([[len(part)], part]).astype("<i8").tobytes())
    return Split(sha256=digest.hexdigest(), sizes=tuple(map(len, parts)))


def read_split(file: Path) -> Split:
    """Read a split's description."""
    document = json.loads(file.read_text())
    return Split(sha256=document["sha256"], sizes=tuple(document["sizes"]))


def read_counts(directory: Path) -> Counts:
    """Read the number of samples by party and class."""
    return np.asarray(json.loads((directory / COUNTS_FILE).read_text()), dtype=np.int64)


def digest_of(directory: Path) -> str:
    """Return a sha256 of all samples and their split."""
    digests = [f"{path.name} {ref_of_file(path).sha256}\n" for path in sorted(directory.iterdir())]
    return ref_of_bytes("".join(digests).encode()).sha256


@dataclass(frozen=True, slots=True)
class PartySamples:
    """Samples, mapped from the disk."""

    inputs: Inputs
    targets: Targets


class Parts:
    """The mapped arrays, copy-on-write; nothing writes to them."""

    def __init__(self, directory: Path) -> None:
        self._inputs, self._targets = (_map(directory / f"train-{name}.npy") for name in ("inputs", "targets"))
        self._ends = np.cumsum(read_counts(directory).sum(axis=1))
        self.test = PartySamples(_map(directory / "test-inputs.npy"), _map(directory / "test-targets.npy"))

    def of(self, party: int) -> PartySamples:
        """Return the samples of a party, counted from 1."""
        end = int(self._ends[party - 1])
        start = int(self._ends[party - 2]) if party > 1 else 0
        return PartySamples(self._inputs[start:end], self._targets[start:end])


def _map(path: Path) -> Any:  # noqa: ANN401 - an array of the dtype that was written
    return np.load(path, mmap_mode="c")  # writable, as torch requires
