"""Samples in memory that the reader writes and the trainer maps: an unnamed file, so that nothing is copied or on disk.

Layout: the inputs and targets of the samples to train on, then of those held out, each at a multiple of 64 bytes.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Sequence
from math import prod
from typing import NamedTuple

import numpy as np

from moonfed.bundle.manifest import InputSpec
from moonfed.bundle.target import TargetSpec
from moonfed.data.data_set import DataSet, Inputs, Rows, Targets
from moonfed.edge_client.data.split import split_rows

ALIGNMENT = 64  # bytes
_Part = tuple[int, np.dtype[np.generic], tuple[int, ...]]  # offset, dtype and shape


class MappedSamples(NamedTuple):
    """Inputs [N, …] and targets [N, …] in shared memory."""

    inputs: Inputs
    targets: Targets


class WrittenSamples(NamedTuple):
    """The counts that `write_samples` returns."""

    trained: int  # samples to train on
    held_out: int
    classes: Sequence[int]  # those of the samples to train on; none where targets are no classes


def write_samples(file: int, samples: DataSet, spec: InputSpec, holdout: float) -> WrittenSamples:
    """Replace the content of an open file with split samples; return how many there are."""
    trained, held_out = split_rows(samples, holdout)
    counts = len(samples) if trained is None else len(trained), len(held_out)
    *parts, end = _parts(spec, samples.target, *counts)
    size = max(1, end[0])
    os.ftruncate(file, size)
    if hasattr(os, "posix_fallocate"):  # otherwise full memory causes a signal instead of an error
        os.posix_fallocate(file, 0, size)
    with mmap.mmap(file, size) as memory:
        # Where the target is the input, what the data say about samples is of no use in training.
        nothing = np.empty((len(samples), 0), samples.target.dtype)
        values = nothing if samples.target.is_input else samples.known_targets()
        for rows, (inputs, targets) in zip((trained, held_out), (parts[:2], parts[2:]), strict=True):
            _write(memory, inputs, samples.inputs, rows)
            _write(memory, targets, values, rows)
        present = _present(memory, parts[1]) if samples.target.kind == "class" else []
    return WrittenSamples(*counts, present)


def _present(memory: mmap.mmap, part: _Part) -> list[int]:
    """Return the classes that occur. An array that outlives the call would keep the memory open."""
    return np.flatnonzero(np.bincount(_array(memory, part))).tolist()


def map_samples(
    file: int, spec: InputSpec, target: TargetSpec, samples: int, held_out: int
) -> tuple[MappedSamples, MappedSamples]:
    """Map what `write_samples` wrote. The arrays are writable; changes stay in this process."""
    *parts, end = _parts(spec, target, samples, held_out)
    memory = mmap.mmap(file, end[0], access=mmap.ACCESS_COPY) if end[0] else mmap.mmap(-1, 1, access=mmap.ACCESS_COPY)
    arrays = [_array(memory, part) for part in parts]
    return MappedSamples(*arrays[:2]), MappedSamples(*arrays[2:4])


def _parts(spec: InputSpec, target: TargetSpec, *counts: int) -> Iterator[_Part]:
    """Return the offsets of inputs and targets for each count, and of the end."""
    offset = 0
    for count in counts:
        for form in (spec, target):
            dtype, shape = np.dtype(form.dtype), (count, *form.shape)
            yield offset, dtype, shape
            offset += -(-prod(shape) * dtype.itemsize // ALIGNMENT) * ALIGNMENT
    yield offset, np.dtype(np.uint8), (0,)


def _array(memory: mmap.mmap, part: _Part) -> Inputs:
    offset, dtype, shape = part
    return np.frombuffer(memory, dtype, prod(shape), offset if prod(shape) else 0).reshape(shape)


def _write(memory: mmap.mmap, part: _Part, values: Inputs | Targets, rows: Rows | None) -> None:
    target = _array(memory, part)
    if rows is None:
        target[...] = values
    elif len(rows):
        np.take(values, rows, axis=0, out=target, mode="clip")  # unbuffered
