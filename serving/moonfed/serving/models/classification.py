"""The classification extension: the top classes of each sample as "confidence:index:label", in Triton's format."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from moonfed.bundle.target import TARGET_PARAMETER, read_target
from moonfed.errors import InvalidInput
from moonfed.serving.models.config import CONFIG_FILE, Config
from moonfed.serving.models.inference_request import Array
from moonfed.serving.models.tensor_codec import bytes_array, datatype_of

Labels = Sequence[str]


def parse_labels(content: bytes, name: str) -> Labels:
    """Parse a file of one label per line, index 0 first; raise InvalidInput if it is not text."""
    try:
        return content.decode().splitlines()
    except UnicodeDecodeError as error:
        raise InvalidInput(f"label file {name} cannot be read: {error}") from error


def outputs_without_classes(config: Config) -> frozenset[str]:
    """Return the outputs that a model's configuration describes as something else than probabilities of classes."""
    if TARGET_PARAMETER not in config.parameters:
        return frozenset()
    where = f"{CONFIG_FILE} of model '{config.name}'"
    target = read_target(config.parameters[TARGET_PARAMETER].string_value, where)
    return frozenset() if target.kind in ("class", "labels") else frozenset({target.output})


def top_classes(array: Array, count: int, labels: Labels, *, batched: bool) -> Array:
    """Format the `count` highest values of each sample, highest first: BYTES [N, k], without batching [k].

    k is at most the number of values of a sample. Raises InvalidInput for a datatype that has no order.
    """
    if array.dtype.kind not in "iuf" or (array.dtype.itemsize < 4 and array.dtype.kind == "f"):
        raise InvalidInput(f"class result not available for output due to unsupported type '{datatype_of(array)}'")
    samples = array.reshape(len(array) if batched else 1, -1)
    k = min(count, samples.shape[1])
    entries = [_format(row, index, labels) for row in samples for index in _descending(row)[:k]]
    result = bytes_array(entries)
    return result.reshape(len(samples), k) if batched else result


def _descending(row: Array) -> Array:
    """Return the indices by descending value; equal values keep their order."""
    indices: Array = (row.size - 1 - np.argsort(row[::-1], kind="stable"))[::-1]
    return indices


def _format(row: Array, index: int, labels: Labels) -> bytes:
    value = f"{float(row[index]):f}" if row.dtype.kind == "f" else str(int(row[index]))
    label = f":{labels[index]}" if index < len(labels) else ""
    return f"{value}:{index}{label}".encode()
