"""Samples that the reader hands to the trainer, in an unnamed file in memory, so that nothing is copied or on disk.

Layout: the inputs and targets of the samples to train on, then of those held out, each at a multiple of 64 bytes.

Samples that are too large for memory stay in the files in which the reader has mapped them, as read-only as there. The
file in memory then has the rows of the samples to train on and of those held out, and whichever of inputs and targets
is in no other file.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import numpy as np

from moonfed.bundle.manifest import InputSpec
from moonfed.bundle.target import TargetSpec
from moonfed.data.data_set import DataSet, Inputs, Rows, Targets
from moonfed.data.storage import place_of
from moonfed.edge_client.data.split import split_rows

ALIGNMENT = 64  # bytes
ARRAYS = ("inputs", "targets")
_Part = tuple[int, np.dtype[np.generic], tuple[int, ...]]  # offset, dtype and shape


@dataclass(frozen=True, slots=True)
class MappedSamples:
    """Inputs [N, …] and targets [N, …] in memory or, with `rows`, those of all samples, of which N count."""

    inputs: Inputs
    targets: Targets
    rows: Rows | None = None  # N
    files: tuple[Readahead, ...] = ()  # of mapped arrays

    def chunk(self, some: slice) -> tuple[Inputs, Targets]:
        """Return some of the N samples."""
        rows = some if self.rows is None else self.rows[some]
        return self.inputs[rows], self.targets[rows]

    def expect(self, rows: Iterable[int]) -> None:
        """Have the kernel read rows of mapped arrays that are needed soon."""
        for file in self.files:
            file.start(rows)


@dataclass(frozen=True, slots=True)
class Readahead:
    """A mapped array whose rows the kernel can read while something else is computed."""

    memory: mmap.mmap
    begin: int  # of the array, in bytes
    row: int  # bytes

    def start(self, rows: Iterable[int]) -> None:
        """Start to read rows."""
        for row in rows:
            start = self.begin + row * self.row
            page = start - start % mmap.PAGESIZE
            self.memory.madvise(mmap.MADV_WILLNEED, page, start + self.row - page)


class WrittenSamples(NamedTuple):
    """The counts that `write_samples` returns."""

    trained: int  # samples to train on
    held_out: int
    classes: Sequence[int]  # those of the samples to train on; none where targets are no classes
    files: Mapping[str, tuple[str, int]]  # of ARRAYS that stay in files: path, and where the array begins


def write_samples(
    file: int, samples: DataSet, spec: InputSpec, holdout: float, room: int | None = None
) -> WrittenSamples:
    """Replace the content of an open file with split samples; return how many there are.

    `room`: the bytes of memory for samples; those that are mapped, and need more, stay where they are. None: all.
    """
    trained, held_out = split_rows(samples, holdout)
    counts = len(samples) if trained is None else len(trained), len(held_out)
    # Where the target is the input, what the data say about samples is of no use in training.
    nothing = np.empty((len(samples), 0), samples.target.dtype)
    values = nothing if samples.target.is_input else samples.known_targets()
    files = _files(samples.inputs, values, room)
    forms = spec, samples.target
    *parts, end = _mapped_parts(*forms, *counts, files) if files else _parts(*forms, *counts)
    size = max(1, end[0])
    os.ftruncate(file, size)
    if hasattr(os, "posix_fallocate"):  # otherwise full memory causes a signal instead of an error
        os.posix_fallocate(file, 0, size)
    with mmap.mmap(file, size) as memory:
        if files:
            used = np.arange(len(samples)) if trained is None else trained
            contents = [used, held_out, samples.inputs, values]
            for name, part, content in zip(("", "", *ARRAYS), parts, contents, strict=True):
                if name not in files:
                    _write(memory, part, content, None)
        else:
            for rows, (inputs, targets) in zip((trained, held_out), (parts[:2], parts[2:]), strict=True):
                _write(memory, inputs, samples.inputs, rows)
                _write(memory, targets, values, rows)
    return WrittenSamples(*counts, _present(values, trained) if samples.target.kind == "class" else [], files)


def _present(labels: Targets, rows: Rows | None) -> list[int]:
    """Return the classes that occur."""
    return np.flatnonzero(np.bincount(labels if rows is None else labels[rows])).tolist()


def _files(inputs: Inputs, targets: Targets, room: int | None) -> Mapping[str, tuple[str, int]]:
    """Return the files of what is mapped, by name; nothing if there is room for all in memory."""
    if room is None or inputs.nbytes + targets.nbytes <= room:
        return {}
    found = {name: place_of(array) for name, array in zip(ARRAYS, (inputs, targets), strict=True)}
    return {name: (str(place[0]), place[1]) for name, place in found.items() if place}


def map_samples(
    file: int,
    spec: InputSpec,
    target: TargetSpec,
    samples: int,
    held_out: int,
    files: Mapping[str, Sequence[int]] | None = None,
) -> tuple[MappedSamples, MappedSamples]:
    """Map what `write_samples` wrote. Arrays in memory are writable; changes stay in this process.

    `files`: descriptors of the files of arrays that stay in files, and where each begins.
    """
    if files:
        return _map_files(file, spec, target, samples, held_out, files)
    *parts, end = _parts(spec, target, samples, held_out)
    memory = mmap.mmap(file, end[0], access=mmap.ACCESS_COPY) if end[0] else mmap.mmap(-1, 1, access=mmap.ACCESS_COPY)
    arrays = [_array(memory, part) for part in parts]
    return MappedSamples(arrays[0], arrays[1]), MappedSamples(arrays[2], arrays[3])


def _map_files(
    file: int, spec: InputSpec, target: TargetSpec, samples: int, held_out: int, files: Mapping[str, Sequence[int]]
) -> tuple[MappedSamples, MappedSamples]:
    *parts, end = _mapped_parts(spec, target, samples, held_out, files)
    memory = mmap.mmap(file, end[0], access=mmap.ACCESS_COPY)
    trained, held = (_array(memory, part) for part in parts[:2])
    arrays, ahead = list[Inputs](), list[Readahead]()
    for name, (offset, dtype, shape) in zip(ARRAYS, parts[2:], strict=True):
        source = memory
        if name in files:
            descriptor, offset = files[name]
            source = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
            ahead.append(Readahead(source, offset, prod(shape[1:]) * dtype.itemsize))
        arrays.append(_array(source, (offset, dtype, shape)))
    inputs, targets = arrays
    files_ahead = tuple(ahead)
    return MappedSamples(inputs, targets, trained, files_ahead), MappedSamples(inputs, targets, held, files_ahead)


def _mapped_parts(
    spec: InputSpec, target: TargetSpec, samples: int, held_out: int, files: Mapping[str, object]
) -> Iterator[_Part]:
    """Return the offsets of the rows, of whole arrays that are in memory, and of the end."""
    offset, count = 0, samples + held_out
    forms: list[tuple[str, str, tuple[int, ...]]] = [("", "int64", (samples,)), ("", "int64", (held_out,))]
    forms += [("inputs", spec.dtype, (count, *spec.shape)), ("targets", target.dtype, (count, *target.shape))]
    for name, text, shape in forms:
        dtype = np.dtype(text)
        yield offset, dtype, shape
        offset += 0 if name in files else _aligned(prod(shape) * dtype.itemsize)
    yield offset, np.dtype(np.uint8), (0,)


def _parts(spec: InputSpec, target: TargetSpec, *counts: int) -> Iterator[_Part]:
    """Return the offsets of inputs and targets for each count, and of the end."""
    offset = 0
    for count in counts:
        for form in (spec, target):
            dtype, shape = np.dtype(form.dtype), (count, *form.shape)
            yield offset, dtype, shape
            offset += _aligned(prod(shape) * dtype.itemsize)
    yield offset, np.dtype(np.uint8), (0,)


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _array(memory: mmap.mmap, part: _Part) -> Inputs:
    offset, dtype, shape = part
    return np.frombuffer(memory, dtype, prod(shape), offset if prod(shape) else 0).reshape(shape)


def _write(memory: mmap.mmap, part: _Part, values: Inputs | Targets, rows: Rows | None) -> None:
    target = _array(memory, part)
    if rows is None:
        target[...] = values
    elif len(rows):
        np.take(values, rows, axis=0, out=target, mode="clip")  # unbuffered
