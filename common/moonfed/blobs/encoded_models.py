"""Encodes and decodes model files slice by slice, in constant memory.

Encoding is deterministic, and a file decodes to the same values on every machine. Input is untrusted: it must match the
manifest's tensors, and the size that follows from them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import BinaryIO

import numpy as np

from moonfed.blobs.compression import compress, decompress, largest_compressed
from moonfed.blobs.schema import FLOAT32, ITEM_SIZE, ITEM_SIZES, TensorSpec, model_size
from moonfed.blobs.tensors import HEADER_ALLOWANCE, check_layout, file_size, header_bytes
from moonfed.encodings import NUMBER_FORMATS, Encoding, temporary_file
from moonfed.encodings.bfloat16 import Bfloat16
from moonfed.encodings.number_format import BLOCK, DTYPES, Floats, NumberFormat, TensorPart
from moonfed.errors import InvalidInput, SchemaMismatch

SLICE = 256 * BLOCK  # values at once; they stay in the processor's cache
STATISTICS = "values:"  # before a statistic's name, where those of parameters have prefixes, too

Read = Callable[[int], Floats]  # the number of values that follow


def largest_file(specs: Sequence[TensorSpec], encoding: Encoding) -> int:
    """Return the maximum size in bytes of a file with these tensors in an encoding, from any writer."""
    plain = _largest_plain(specs, encoding)
    return largest_compressed(plain) if encoding.compressed else plain


def encode_model(
    model: Path,
    target: Path,
    specs: Sequence[TensorSpec],
    encoding: Encoding,
    *,
    initial_model: Path | None = None,
    changes: bool = True,
    clip_norm: float = 0.0,
    error: Path | None = None,
    new_error: Path | None = None,
) -> None:
    """Write a checked model, with these tensors, in an encoding.

    `initial_model`: encode the parameters' change from this model, or without `changes`, the model. `error`: a file of
    the parameters' previous encoding error, added to the change; `new_error`: where to write the new one (error
    feedback: Seide et al. 2014; Karimireddy et al. 2019). `clip_norm`: the largest L2 norm of what is encoded as the
    change, the previous error included; 0: any. Raises InvalidInput, naming the tensor, for a sum that float32 cannot
    hold.
    """
    parameters = [spec for spec in specs if spec.kind == "parameter"]
    scale = _clip_scale(model, specs, initial_model, error, clip_norm) if clip_norm else 1.0
    with _compressing(target, encoding) as plain, ExitStack() as stack:
        encoded = _EncodedFile(_create(stack, plain, encoded_specs(specs, encoding)), specs, encoding)
        trained, before = _reader(stack, model, specs), _reader(stack, initial_model, specs)
        kept = _reader(stack, error, parameters)
        left = _create(stack, new_error, parameters) if new_error else None
        for spec, start, count in _pieces(specs):
            values, base = trained(count), before(count)
            if spec.kind == "parameter" and (changes or scale < 1):
                change = _change(values, base, kept(count), spec)
                change = change if scale == 1 else (change.astype(np.float64) * scale).astype(np.float32)
                values = change if changes else _towards(base, change)
            decoded = encoded.write(spec, start, values)
            if left and spec.kind == "parameter":
                left.write((values - decoded).data)


def decode_model(
    source: Path, target: Path, specs: Sequence[TensorSpec], encoding: Encoding, *, initial_model: Path | None = None
) -> None:
    """Write the float32 model that an encoded file represents; `initial_model`: what its parameters are changes from.

    Raises SchemaMismatch, naming the tensor, or InvalidInput for a malformed file. The caller checks that
    the values are finite.
    """
    with _decompressed(source, target, specs, encoding) as plain, ExitStack() as stack:
        file = stack.enter_context(plain.open("rb"))
        file.seek(check_layout(plain, encoded_specs(specs, encoding)))
        encoded = _EncodedFile(file, specs, encoding)
        before, writing = _reader(stack, initial_model, specs), _create(stack, target, specs)
        for spec, first, count in _pieces(specs):
            values, base = encoded.read(spec, first, count), before(count)
            with np.errstate(over="ignore", invalid="ignore"):
                writing.write((values + base if spec.kind == "parameter" else values).data)


def _pieces(specs: Sequence[TensorSpec]) -> Iterator[tuple[TensorSpec, int, int]]:
    """Yield a model's pieces: a tensor, its first value and their number. A piece begins with a block."""
    for spec in specs:
        for start in range(0, spec.size, SLICE):
            yield spec, start, min(SLICE, spec.size - start)


def _clip_scale(
    model: Path, specs: Sequence[TensorSpec], initial_model: Path | None, error: Path | None, clip_norm: float
) -> float:
    """Return the factor, at most 1, that scales the parameters' change down to an L2 norm."""
    squares = 0.0
    with ExitStack() as stack:
        trained, before = _reader(stack, model, specs), _reader(stack, initial_model, specs)
        kept = _reader(stack, error, [spec for spec in specs if spec.kind == "parameter"])
        for spec, _, count in _pieces(specs):
            values, base = trained(count), before(count)
            if spec.kind == "parameter":
                change = _change(values, base, kept(count), spec).astype(np.float64)
                squares += float(np.square(change).sum())
    norm = math.sqrt(squares)
    return clip_norm / norm if norm > clip_norm else 1.0


def _towards(base: Floats, change: Floats) -> Floats:
    """Return base + change, rounded towards the base, so that rounding makes no change larger."""
    sums = base + change
    beyond = np.abs(sums.astype(np.float64) - base) > np.abs(change)
    return np.where(beyond, np.nextafter(sums, base), sums)


def _change(values: Floats, base: Floats, error: Floats, spec: TensorSpec) -> Floats:
    with np.errstate(over="ignore", invalid="ignore"):
        change = values - base + error
    if not np.isfinite(change).all():
        raise InvalidInput(
            f"the change of tensor {spec.name!r} is larger than float32 can hold", field="tensor", value=spec.name
        )
    return change


class _EncodedFile:
    """The parts of an uncompressed encoded file, each at its offset."""

    def __init__(self, file: BinaryIO, specs: Sequence[TensorSpec], encoding: Encoding) -> None:
        """Read values from the current position of the file."""
        self._file, self._layout = file, _Layout(encoding)
        encoded = encoded_specs(specs, encoding)
        offsets = accumulate((spec.bytes for spec in encoded), initial=file.tell())
        self._offsets = {spec.name: offset for spec, offset in zip(encoded, offsets, strict=False)}

    def write(self, spec: TensorSpec, start: int, values: Floats) -> Floats:
        """Encode values from the tensor's `start` on; return the values that they decode to."""
        number_format, parts = self._layout.of(spec)
        numbers = number_format.encode(values)
        for part, content in zip(parts, numbers, strict=True):
            self._seek(part, spec, start)
            self._file.write(np.ascontiguousarray(content, DTYPES[part.dtype]).data)
        return number_format.decode(numbers, values.size)

    def read(self, spec: TensorSpec, start: int, count: int) -> Floats:
        """Decode `count` values, from the tensor's `start` on; SchemaMismatch for invalid content."""
        number_format, parts = self._layout.of(spec)
        numbers = []
        for part in parts:
            self._seek(part, spec, start)
            content = self._file.read(ITEM_SIZES[part.dtype] * part.elements(count))
            numbers.append(np.frombuffer(content, DTYPES[part.dtype]))
        if problem := number_format.find_problem(numbers, count):
            raise SchemaMismatch(f"tensor {spec.name!r} {problem}", field="tensor", value=spec.name)
        return number_format.decode(numbers, count)

    def _seek(self, part: TensorPart, spec: TensorSpec, start: int) -> None:
        self._file.seek(self._offsets[part.prefix + spec.name] + ITEM_SIZES[part.dtype] * (start // part.values))


class _Layout:
    """The number format and the parts of every tensor in an encoding."""

    def __init__(self, encoding: Encoding) -> None:
        self._parameters = NUMBER_FORMATS.select(encoding.number)()
        prefix = STATISTICS if any(part.prefix for part in self._parameters.parts) else ""
        bfloat16 = Bfloat16()
        self._statistics = (
            (bfloat16, tuple(replace(part, prefix=prefix) for part in bfloat16.parts))
            if encoding.lossy
            else (self._parameters, self._parameters.parts)
        )

    def of(self, spec: TensorSpec) -> tuple[NumberFormat, tuple[TensorPart, ...]]:
        """Return the format of a tensor, and its parts."""
        if spec.kind == "statistic":
            return self._statistics
        number_format = self._parameters.of_size(spec.size)
        return number_format, number_format.parts


def encoded_specs(specs: Sequence[TensorSpec], encoding: Encoding) -> tuple[TensorSpec, ...]:
    """Return the tensors of a file that holds these in an encoding, uncompressed, in their order in the file."""
    layout = _Layout(encoding)
    found = [
        TensorSpec(
            part.prefix + spec.name,
            spec.shape if part.values == 1 else (part.elements(spec.size),),
            spec.kind,
            part.dtype,
        )
        for spec in specs
        for part in layout.of(spec)[1]
    ]
    # The widest numbers first, as the safetensors library orders them, so that all lie aligned.
    return tuple(sorted(found, key=lambda spec: -ITEM_SIZES[spec.dtype]))


def _reader(stack: ExitStack, model: Path | None, specs: Sequence[TensorSpec]) -> Read:
    """Read a checked float32 file with these tensors from its first value on; without a file, zeros."""
    if model is None:
        return lambda count: np.zeros(count, np.float32)
    file = stack.enter_context(model.open("rb"))
    file.seek(model.stat().st_size - ITEM_SIZE * model_size(specs))  # whatever another writer's header holds
    return lambda count: np.frombuffer(file.read(ITEM_SIZE * count), DTYPES[FLOAT32])


def _create(stack: ExitStack, path: Path, specs: Sequence[TensorSpec]) -> BinaryIO:
    """Create a file with these tensors' header."""
    file = stack.enter_context(path.open("wb"))
    file.write(header_bytes(specs))
    return file


def _largest_plain(specs: Sequence[TensorSpec], encoding: Encoding) -> int:
    return file_size(encoded_specs(specs, encoding)) + HEADER_ALLOWANCE


@contextmanager
def _compressing(target: Path, encoding: Encoding) -> Iterator[Path]:
    """Open the file to write; its content becomes `target`, compressed if the encoding is."""
    if not encoding.compressed:
        yield target
        return
    with _temporary(target) as plain:
        yield plain
        compress(plain, target)


@contextmanager
def _decompressed(source: Path, target: Path, specs: Sequence[TensorSpec], encoding: Encoding) -> Iterator[Path]:
    """Open the file to read; a compressed one is decompressed next to `target` meanwhile."""
    if not encoding.compressed:
        yield source
        return
    with _temporary(target) as plain:
        decompress(source, plain, _largest_plain(specs, encoding))
        yield plain


@contextmanager
def _temporary(path: Path) -> Iterator[Path]:
    """Name a temporary file next to a path; where files cannot be deleted, it exists before and is emptied."""
    plain = path.with_name(temporary_file(path.name))
    try:
        yield plain
    finally:
        try:
            plain.unlink(missing_ok=True)
        except PermissionError:
            plain.write_bytes(b"")
