"""Models as flat buffers with names: reading, checking and writing safetensors without any framework.

A safetensors file is an 8-byte little-endian header length, a JSON header and one buffer. moonfed requires the tensors
ordered by name and without gaps, as the safetensors library writes float32 models, so a model is one vector and
aggregation is arithmetic on it.
Format: https://huggingface.co/docs/safetensors
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from moonfed.blobs.schema import FLOAT32 as FLOAT32
from moonfed.blobs.schema import ITEM_SIZE as ITEM_SIZE
from moonfed.blobs.schema import Kind as Kind
from moonfed.blobs.schema import TensorSpec as TensorSpec
from moonfed.blobs.schema import model_size as model_size
from moonfed.errors import InvalidInput, SchemaMismatch

Vector = npt.NDArray[np.float32]
HEADER_ALLOWANCE = 1 << 16  # bytes beyond our own header: other writers' white space and metadata


def header_bytes(specs: Sequence[TensorSpec]) -> bytes:
    """Return the header of a file that holds these tensors in this order, its length prefix included."""
    return _header_bytes(tuple(specs))


@lru_cache(maxsize=16)  # a fleet's updates have the same one
def _header_bytes(specs: tuple[TensorSpec, ...]) -> bytes:
    entries: dict[str, object] = {}
    offset = 0
    for spec in specs:
        end = offset + spec.bytes
        entries[spec.name] = {"dtype": spec.dtype, "shape": list(spec.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the buffer starts aligned
    return len(text).to_bytes(8, "little") + text


def file_size(specs: Sequence[TensorSpec]) -> int:
    """Return the size in bytes of a file written by `write_model`."""
    return len(header_bytes(specs)) + sum(spec.bytes for spec in specs)


def write_model(path: Path, specs: Sequence[TensorSpec], slices: Iterable[Vector]) -> None:
    """Write a model from consecutive slices of its flat vector; InvalidInput if their lengths do not add up."""
    written = 0
    with path.open("wb") as file:
        file.write(header_bytes(specs))
        for piece in slices:
            file.write(np.ascontiguousarray(piece, dtype="<f4").data)
            written += piece.size
    if written != model_size(specs):
        raise InvalidInput(f"the model has {written} elements; its tensors need {model_size(specs)}")


def open_model(path: Path, specs: Sequence[TensorSpec]) -> Vector:
    """Map a model's flat vector read-only after checking that it holds exactly these tensors, in this order.

    Raises SchemaMismatch, naming the tensor, for a missing, extra, duplicate or reordered name, another dtype, another
    shape (a broadcastable one included), or offsets that leave gaps or overlap.
    """
    start, size = check_layout(path, specs), model_size(specs)
    if size == 0:
        return np.zeros(0, dtype=np.float32)
    return np.memmap(path, dtype="<f4", mode="r", offset=start, shape=(size,))


def check_layout(path: Path, specs: Sequence[TensorSpec]) -> int:
    """Return the buffer's offset in a file that holds exactly these tensors, in order and of any dtype.

    Raises SchemaMismatch as `open_model` does.
    """
    usual = header_bytes(specs)
    with path.open("rb", buffering=0) as file:
        start, size = len(usual), os.fstat(file.fileno()).st_size
        if file.read(start) != usual:  # of another writer, or of other tensors
            start = _check_header(path, specs)
    expected = start + sum(spec.bytes for spec in specs)
    if size != expected:
        raise SchemaMismatch(f"the file has {size} bytes; its header specifies {expected}")
    return start


def split(vector: Vector, specs: Sequence[TensorSpec]) -> dict[str, Vector]:
    """Return a flat vector as named tensors; views, not copies."""
    tensors, offset = {}, 0
    for spec in specs:
        tensors[spec.name] = vector[offset : offset + spec.size].reshape(spec.shape)
        offset += spec.size
    return tensors


def require_finite(vector: Vector, specs: Sequence[TensorSpec]) -> None:
    """Raise SchemaMismatch, naming the first tensor that holds NaN or an infinity."""
    offset = 0
    for spec in specs:
        values = vector[offset : offset + spec.size]
        if not np.isfinite(values).all():
            raise SchemaMismatch(
                f"tensor {spec.name!r} holds NaN or infinite values; all must be finite",
                field="tensor",
                value=spec.name,
            )
        offset += spec.size


def _check_header(path: Path, specs: Sequence[TensorSpec]) -> int:
    """Raise SchemaMismatch unless the header is that of these tensors; return the buffer's offset."""
    found, start = _read_header(path, len(header_bytes(specs)) + HEADER_ALLOWANCE)
    _check(specs, found)
    return start


def _read_header(path: Path, limit: int) -> tuple[list[tuple[str, object]], int]:
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= limit:  # parsing a long one takes 25 times its memory
            raise SchemaMismatch(f"the tensor header claims {length} bytes; 2 to {limit} are allowed")
        text = file.read(length)
    try:
        pairs = json.loads(text, object_pairs_hook=list)
    except (ValueError, RecursionError) as error:
        raise SchemaMismatch("the tensor header is not JSON: this is not a safetensors file") from error
    if not isinstance(pairs, list) or not all(isinstance(pair, tuple) for pair in pairs):
        raise SchemaMismatch("the tensor header is not a JSON object: this is not a safetensors file")
    return [pair for pair in pairs if pair[0] != "__metadata__"], 8 + length


def _check(specs: Sequence[TensorSpec], found: list[tuple[str, object]]) -> None:
    expected, names = {spec.name for spec in specs}, [name for name, _ in found]
    for name in names:
        if name not in expected:
            raise SchemaMismatch(f"tensor {name!r} is not part of the model", field="tensor", value=name)
        if names.count(name) > 1:
            raise SchemaMismatch(
                f"tensor {name!r} appears {names.count(name)} times; once is allowed", field="tensor", value=name
            )
    offset = 0
    entries = dict(found)
    for spec in specs:
        if spec.name not in entries:
            raise SchemaMismatch(f"tensor {spec.name!r} is missing", field="tensor", value=spec.name)
        entry = entries[spec.name]
        fields = dict(entry) if isinstance(entry, list) and all(isinstance(pair, tuple) for pair in entry) else {}
        if fields.get("dtype") != spec.dtype:
            raise SchemaMismatch(
                f"tensor {spec.name!r} has dtype {fields.get('dtype')!r}; it must be {spec.dtype!r}",
                field="tensor",
                value=spec.name,
            )
        if fields.get("shape") != list(spec.shape):
            raise SchemaMismatch(
                f"tensor {spec.name!r} has shape {fields.get('shape')!r}; it must be {list(spec.shape)}",
                field="tensor",
                value=spec.name,
            )
        end = offset + spec.bytes
        if fields.get("data_offsets") != [offset, end]:
            raise SchemaMismatch(
                f"tensor {spec.name!r} is at bytes {fields.get('data_offsets')!r}; it must be at [{offset}, {end}]",
                field="tensor",
                value=spec.name,
            )
        offset = end
