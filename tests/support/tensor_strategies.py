"""Tensors of every datatype, for the codecs' property tests."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from moonfed.serving.models.inference_request import Array

NUMBERS = {
    "BOOL": np.bool_,
    "UINT8": np.uint8,
    "UINT16": np.uint16,
    "UINT32": np.uint32,
    "UINT64": np.uint64,
    "INT8": np.int8,
    "INT16": np.int16,
    "INT32": np.int32,
    "INT64": np.int64,
    "FP16": np.float16,
    "FP32": np.float32,
    "FP64": np.float64,
}
SHAPES = arrays.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=4)


def tensors(*datatypes: str, text: bool = False) -> st.SearchStrategy[tuple[str, Array]]:
    """Generate (datatype, array); `text`: BYTES are UTF-8."""
    return st.sampled_from(datatypes or (*NUMBERS, "BYTES")).flatmap(lambda datatype: _of(datatype, text=text))


def _of(datatype: str, *, text: bool) -> st.SearchStrategy[tuple[str, Array]]:
    if datatype != "BYTES":
        return arrays.arrays(NUMBERS[datatype], SHAPES).map(lambda array: (datatype, array))
    elements = st.text(max_size=5).map(str.encode) if text else st.binary(max_size=5)
    return SHAPES.flatmap(
        lambda shape: st.lists(elements, min_size=int(np.prod(shape)), max_size=int(np.prod(shape))).map(
            lambda found: (datatype, objects(found, shape))
        )
    )


def objects(elements: list[bytes], shape: tuple[int, ...]) -> Array:
    array: np.ndarray[Any, Any] = np.empty(len(elements), dtype=np.object_)
    for index, element in enumerate(elements):
        array[index] = element
    return array.reshape(shape)


def same(found: Array, expected: Array) -> bool:
    """Compare dtype, shape and bits (a NaN equals itself)."""
    if found.dtype != expected.dtype or found.shape != expected.shape:
        return False
    return found.tolist() == expected.tolist() if found.dtype == np.object_ else found.tobytes() == expected.tobytes()
