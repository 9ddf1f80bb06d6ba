"""Model files read and written slice by slice: memory grows neither with the fleet nor with the model.

Sums are float64 and in the order given, so that rounding depends on the devices' order, not on the order
of arrival.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from io import FileIO
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from moonfed.blobs.tensors import ITEM_SIZE, Kind, TensorSpec, header_bytes
from moonfed.errors import Corrupt, InvalidInput
from moonfed.server_rules.server_rule import Float64Array

SLICE_ELEMENTS = 1 << 16  # elements: a slice, its scaled copy and the sums stay in the processor's cache
Float32Array = npt.NDArray[np.float32]
ElementIndex = slice | npt.NDArray[np.bool_]  # of some elements of a slice


def ranges(size: int, slice_elements: int) -> Iterator[tuple[int, int]]:
    """Yield consecutive (start, stop) that cover `size` elements."""
    for start in range(0, size, slice_elements):
        yield start, min(start + slice_elements, size)


def read_elements(path: Path, size: int, start: int, stop: int) -> Float32Array:
    """Read elements start to stop of a checked file of `size` elements. Mapping a short slice is five times slower."""
    with path.open("rb", buffering=0) as file:
        return _read(file, size, start, stop)


def read_slices(path: Path, size: int) -> Iterator[Float32Array]:
    """Read a checked file of `size` elements, slice by slice."""
    with path.open("rb", buffering=0) as file:
        for start, stop in ranges(size, SLICE_ELEMENTS):
            yield _read(file, size, start, stop)


def _read(file: FileIO, size: int, start: int, stop: int) -> Float32Array:
    values = np.empty(stop - start, "<f4")
    file.seek(-ITEM_SIZE * (size - start), os.SEEK_END)  # the buffer ends the file, whatever the header holds
    read_bytes = file.readinto(values.data)
    if read_bytes != values.nbytes:
        raise Corrupt(f"{file.name} ended after {read_bytes} of {values.nbytes} bytes")
    return values


def weighted_sum(
    paths: Sequence[Path], weights: Iterable[float | Float64Array], size: int, start: int, stop: int
) -> Float64Array:
    """Return the sum of weight times file over the elements start to stop; a weight may be one for each element."""
    sums, scaled = np.zeros(stop - start), np.empty(stop - start)
    for path, weight in zip(paths, weights, strict=True):
        np.multiply(read_elements(path, size, start, stop), weight, out=scaled, dtype=np.float64)
        sums += scaled
    return sums


def is_parameter(specs: Sequence[TensorSpec], start: int, stop: int) -> npt.NDArray[np.bool_]:
    """Return a mask of the elements start to stop that belong to parameters, not to statistics."""
    mask, offset = np.zeros(stop - start, np.bool_), 0
    for spec in specs:
        if spec.kind == "parameter":
            mask[max(offset - start, 0) : max(offset + spec.size - start, 0)] = True
        offset += spec.size
    return mask


def indices_by_kind(specs: Sequence[TensorSpec], start: int, stop: int) -> Iterator[tuple[Kind, ElementIndex]]:
    """Yield the elements start to stop of each kind that occurs."""
    parameter = is_parameter(specs, start, stop)
    if parameter.all() or not parameter.any():
        yield ("parameter" if parameter.all() else "statistic"), slice(None)
    else:
        yield from (("parameter", parameter), ("statistic", ~parameter))


class ModelWriter:
    """A writer of one file from consecutive slices, rounded to float32."""

    def __init__(self, file: BinaryIO, specs: Sequence[TensorSpec]) -> None:
        self._file = file
        file.write(header_bytes(specs))

    def write(self, values: Float64Array) -> None:
        """Append a slice; InvalidInput if float32 cannot hold it."""
        with np.errstate(over="ignore"):
            rounded = values.astype("<f4")
        if not np.isfinite(rounded).all():
            raise InvalidInput(
                "the new model has values that float32 cannot hold: training diverges with these settings, or the "
                "server rule or reducer returns such values",
                field="values",
            )
        self._file.write(np.ascontiguousarray(rounded).data)


@contextmanager
def writers(files: Mapping[str, Path], specs: Sequence[TensorSpec]) -> Iterator[dict[str, ModelWriter]]:
    """Open one writer for each role's file, all of the same tensors."""
    with ExitStack() as stack:
        yield {role: ModelWriter(stack.enter_context(path.open("wb")), specs) for role, path in files.items()}
