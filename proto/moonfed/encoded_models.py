"""Model files in an encoding, from and to float32 model files, slice by slice: memory grows with no model.

The same input gives the same bytes, and an encoded file's decoded values are the same on every machine. What is decoded
may come from anybody: it is held to the manifest's tensors and to the size that follows from them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import accumulate
from pathlib import Path
from typing import BinaryIO

import numpy as np

from moonfed.compression import compress, decompress, largest_compressed
from moonfed.encodings import BLOCK, Encoding, blocks, encoded_specs, scales_name, values_name
from moonfed.errors import InvalidInput, SchemaMismatch
from moonfed.quantisation import DTYPES, NO_SCALES, Floats, Numbers, quantise, restore
from moonfed.schema import FLOAT32, INT8, ITEM_SIZE, ITEM_SIZES, TensorSpec, model_size
from moonfed.tensors import HEADER_ALLOWANCE, check_layout, file_size, header_bytes

SLICE = 256 * BLOCK  # values at once; they stay in the processor's cache

Read = Callable[[int], Floats]  # the next so many values


def largest_file(specs: Sequence[TensorSpec], encoding: Encoding) -> int:
    """Bytes that a file with these tensors may have in an encoding, whoever wrote it."""
    plain = _largest_plain(specs, encoding)
    return largest_compressed(plain) if encoding.compressed else plain


def encode_model(
    model: Path,
    target: Path,
    specs: Sequence[TensorSpec],
    encoding: Encoding,
    *,
    begun_with: Path | None = None,
    error: Path | None = None,
    new_error: Path | None = None,
) -> None:
    """Writes a checked model, with these tensors, in an encoding.

    `begun_with`: a model; what is encoded of the parameters is their change from it. `error`: a file of the parameters,
    added to that; `new_error` is written likewise, with what the encoding lost of the sum (error feedback: Seide et al.
    2014; Karimireddy et al. 2019). Raises InvalidInput, naming the tensor, for a sum that float32 cannot hold.
    """
    parameters = [spec for spec in specs if spec.kind == "parameter"]
    with _to_be_compressed(target, encoding) as plain, ExitStack() as stack:
        encoded = _EncodedFile(_create(stack, plain, encoded_specs(specs, encoding)), specs, encoding)
        trained, before = _reader(stack, model, specs), _reader(stack, begun_with, specs)
        kept = _reader(stack, error, parameters)
        left = _create(stack, new_error, parameters) if new_error else None
        for spec, start, count in _pieces(specs):
            values, base = trained(count), before(count)
            if spec.kind == "parameter":
                values = _change(values, base, kept(count), spec)
            numbers, scales = quantise(values, encoded.dtype(spec))
            encoded.write(spec, start, numbers, scales)
            if left and spec.kind == "parameter":
                left.write((values - restore(numbers, scales)).data)


def decode_model(
    source: Path, target: Path, specs: Sequence[TensorSpec], encoding: Encoding, *, begun_with: Path | None = None
) -> None:
    """Writes the float32 model that an encoded file stands for; `begun_with`: what its parameters are changes from.

    Raises SchemaMismatch, naming the tensor, or InvalidInput for a file that is no such model. Values that are not
    finite are left to whoever checks the model.
    """
    with _decompressed(source, target, specs, encoding) as plain, ExitStack() as stack:
        file = stack.enter_context(plain.open("rb"))
        file.seek(check_layout(plain, encoded_specs(specs, encoding)))
        encoded = _EncodedFile(file, specs, encoding)
        before, writing = _reader(stack, begun_with, specs), _create(stack, target, specs)
        for spec, first, count in _pieces(specs):
            values, base = restore(*encoded.read(spec, first, count)), before(count)
            with np.errstate(over="ignore", invalid="ignore"):
                writing.write((values + base if spec.kind == "parameter" else values).data)


def _pieces(specs: Sequence[TensorSpec]) -> Iterator[tuple[TensorSpec, int, int]]:
    """A model's values: of this tensor, from this one on, so many. A piece begins with a block."""
    for spec in specs:
        for start in range(0, spec.size, SLICE):
            yield spec, start, min(SLICE, spec.size - start)


def _change(values: Floats, base: Floats, error: Floats, spec: TensorSpec) -> Floats:
    with np.errstate(over="ignore", invalid="ignore"):
        change = values - base + error
    if not np.isfinite(change).all():
        raise InvalidInput(f"the change of tensor {spec.name!r} is larger than float32 can hold")
    return change


class _EncodedFile:
    """The numbers and scales of an uncompressed encoded file, each at its place."""

    def __init__(self, file: BinaryIO, specs: Sequence[TensorSpec], encoding: Encoding) -> None:
        """The values begin where the file stands."""
        self._file, self._encoding = file, encoding
        encoded = encoded_specs(specs, encoding)
        offsets = accumulate((spec.bytes for spec in encoded), initial=file.tell())
        self._places = {spec.name: (spec.dtype, offset) for spec, offset in zip(encoded, offsets, strict=False)}

    def dtype(self, spec: TensorSpec) -> str:
        """Of a tensor's numbers."""
        return self._places[values_name(spec, self._encoding)][0]

    def write(self, spec: TensorSpec, start: int, numbers: Numbers, scales: Floats) -> None:
        """Puts numbers, from the tensor's `start` on, and their scales to their places."""
        self._seek(values_name(spec, self._encoding), start)
        self._file.write(numbers.data)
        if scales.size:
            self._seek(scales_name(spec), start // BLOCK)
            self._file.write(scales.data)

    def read(self, spec: TensorSpec, start: int, count: int) -> tuple[Numbers, Floats]:
        """So many numbers, from the tensor's `start` on, and their scales; SchemaMismatch for a senseless scale."""
        numbers = self._read(values_name(spec, self._encoding), start, count)
        if self.dtype(spec) != INT8:
            return numbers, NO_SCALES
        scales = self._read(scales_name(spec), start // BLOCK, blocks(count))
        if not (np.isfinite(scales) & (scales >= 0)).all():
            raise SchemaMismatch(f"tensor {spec.name!r} has a scale below 0, NaN or infinite; it must be finite")
        return numbers, scales

    def _read(self, name: str, start: int, count: int) -> Numbers:
        dtype = self._seek(name, start)
        return np.frombuffer(self._file.read(ITEM_SIZES[dtype] * count), DTYPES[dtype])

    def _seek(self, name: str, start: int) -> str:
        dtype, offset = self._places[name]
        self._file.seek(offset + ITEM_SIZES[dtype] * start)
        return dtype


def _reader(stack: ExitStack, model: Path | None, specs: Sequence[TensorSpec]) -> Read:
    """Reads a checked float32 file with these tensors from its first value on; none is read as zeros."""
    if model is None:
        return lambda count: np.zeros(count, np.float32)
    file = stack.enter_context(model.open("rb"))
    file.seek(model.stat().st_size - ITEM_SIZE * model_size(specs))  # whatever another writer's header holds
    return lambda count: np.frombuffer(file.read(ITEM_SIZE * count), DTYPES[FLOAT32])


def _create(stack: ExitStack, path: Path, specs: Sequence[TensorSpec]) -> BinaryIO:
    """A new file with these tensors' header."""
    file = stack.enter_context(path.open("wb"))
    file.write(header_bytes(specs))
    return file


def _largest_plain(specs: Sequence[TensorSpec], encoding: Encoding) -> int:
    return file_size(encoded_specs(specs, encoding)) + HEADER_ALLOWANCE


@contextmanager
def _to_be_compressed(target: Path, encoding: Encoding) -> Iterator[Path]:
    """The file to write; what is written becomes `target`, compressed if the encoding says so."""
    if not encoding.compressed:
        yield target
        return
    with _beside(target) as plain:
        yield plain
        compress(plain, target)


@contextmanager
def _decompressed(source: Path, target: Path, specs: Sequence[TensorSpec], encoding: Encoding) -> Iterator[Path]:
    """The file to read; a compressed one lies decompressed beside `target` meanwhile."""
    if not encoding.compressed:
        yield source
        return
    with _beside(target) as plain:
        decompress(source, plain, _largest_plain(specs, encoding))
        yield plain


@contextmanager
def _beside(path: Path) -> Iterator[Path]:
    """A file that is gone afterwards."""
    plain = path.with_name(f"{path.name}.plain")
    try:
        yield plain
    finally:
        plain.unlink(missing_ok=True)
