"""The protocol's datatypes: their names in numpy, ONNX Runtime and config.pbtxt, and tensors as raw bytes."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence

import numpy as np

from moonfed.errors import InvalidInput
from moonfed.serving.models.inference_request import Array

BYTES = "BYTES"
_NUMBERS: Mapping[str, np.dtype[np.generic]] = {
    "BOOL": np.dtype(np.bool_),
    "UINT8": np.dtype(np.uint8),
    "UINT16": np.dtype(np.uint16),
    "UINT32": np.dtype(np.uint32),
    "UINT64": np.dtype(np.uint64),
    "INT8": np.dtype(np.int8),
    "INT16": np.dtype(np.int16),
    "INT32": np.dtype(np.int32),
    "INT64": np.dtype(np.int64),
    "FP16": np.dtype(np.float16),
    "FP32": np.dtype(np.float32),
    "FP64": np.dtype(np.float64),
}
# By datatype; elements of BYTES are Python bytes objects. BF16 is missing because numpy lacks it.
DTYPES: Mapping[str, np.dtype[np.generic]] = {**_NUMBERS, BYTES: np.dtype(np.object_)}
_DATATYPES = {dtype: datatype for datatype, dtype in DTYPES.items()}
_ONNX_ELEMENTS = {
    "bool": "BOOL",
    **{f"uint{bits}": f"UINT{bits}" for bits in (8, 16, 32, 64)},
    **{f"int{bits}": f"INT{bits}" for bits in (8, 16, 32, 64)},
    "float16": "FP16",
    "float": "FP32",
    "double": "FP64",
    "string": BYTES,
}
MAX_DIMENSIONS = 32  # the limit of numpy 1
MAX_OUTPUTS = 1000  # of one request
MAX_ELEMENTS = 1 << 40  # more than any request can hold; a length of 0 counts as 1
_LENGTH = struct.Struct("<I")  # before each element of BYTES


def datatype_of(array: Array) -> str:
    """Return the datatype of an array; raise InvalidInput if the protocol has none for its dtype."""
    datatype = _DATATYPES.get(array.dtype)
    if datatype is None:
        raise InvalidInput(f"dtype is {array.dtype.name!r}; it must be one that has a datatype: {', '.join(DTYPES)}")
    return datatype


def from_onnx_type(type_name: str) -> str:
    """Convert ONNX Runtime's type, such as "tensor(float)" to "FP32"; raise InvalidInput if there is no datatype."""
    element = type_name.removeprefix("tensor(").removesuffix(")")
    if not type_name.startswith("tensor(") or element not in _ONNX_ELEMENTS:
        raise InvalidInput(f"ONNX type is {type_name!r}; it must be a tensor of {', '.join(_ONNX_ELEMENTS)}")
    return _ONNX_ELEMENTS[element]


def to_config_type(datatype: str) -> str:
    """Return a datatype's name in config.pbtxt, such as "TYPE_FP32"."""
    return "TYPE_STRING" if datatype == BYTES else f"TYPE_{datatype}"


def from_config_type(name: str) -> str:
    """Return the datatype of a name in config.pbtxt; raise InvalidInput for one that cannot be served."""
    datatype = BYTES if name == "TYPE_STRING" else name.removeprefix("TYPE_")
    if datatype not in DTYPES:
        allowed = ", ".join(to_config_type(each) for each in DTYPES)
        raise InvalidInput(f"data_type is {name}; it must be one of {allowed}")
    return datatype


def decode(
    raw: bytes | memoryview, datatype: str, shape: Sequence[int], *, name: str, model: str, request_id: str = ""
) -> Array:
    """Decode a request's input from its raw bytes: a read-only view of them, a new object array for BYTES.

    `name`, `model` and `request_id` are for error messages. Raises InvalidInput if the datatype is unknown or the bytes
    do not fit the shape.
    """
    dtype = DTYPES.get(datatype)
    if dtype is None:
        allowed = f"it must be one of {', '.join(DTYPES)}"
        raise InvalidInput(f"{request_prefix(request_id)}inference input '{name}' data-type is {datatype!r}; {allowed}")
    require_dimensions(shape, name)
    if min(shape, default=0) < 0:
        raise InvalidInput(
            f"{request_prefix(request_id)}unexpected shape for input '{name}' for model '{model}'. "
            f"Expected no length below 0, got {format_shape(shape)}"
        )
    count = math.prod(shape)
    if datatype == BYTES:
        context = f"for inference input '{name}' for model '{model}'"
        elements = _elements(memoryview(raw), context, request_id)
        if len(elements) != count:
            raise InvalidInput(request_prefix(request_id) + _wrong_count(len(elements), count, context))
        return reshaped(bytes_array(elements), shape, name)
    if len(raw) != count * dtype.itemsize:
        raise InvalidInput(
            f"{request_prefix(request_id)}input byte size mismatch for input '{name}' for model '{model}'. "
            f"Expected {count * dtype.itemsize}, got {len(raw)}"
        )
    return reshaped(np.frombuffer(raw, dtype), shape, name)


def require_few_outputs(count: int, request_id: str) -> None:
    """Raise InvalidInput for more outputs than any model has; each takes more memory than its bytes in the request."""
    if count > MAX_OUTPUTS:
        raise InvalidInput(f"{request_prefix(request_id)}{count} outputs are requested; at most {MAX_OUTPUTS} may be")


def require_dimensions(shape: Sequence[int], name: str) -> None:
    """Raise InvalidInput for more dimensions than an array can have."""
    if len(shape) > MAX_DIMENSIONS:
        raise InvalidInput(f"input '{name}' has {len(shape)} dimensions; it must have at most {MAX_DIMENSIONS}")


def reshaped(array: Array, shape: Sequence[int], name: str) -> Array:
    """Reshape an array; raise InvalidInput if no array can have the shape."""
    if math.prod(max(side, 1) for side in shape) > MAX_ELEMENTS:
        raise InvalidInput(f"input '{name}' has shape {format_shape(shape)}; its lengths are too large")
    return array.reshape(shape)


def encode(array: Array) -> bytes:
    """Encode a tensor: little-endian numbers in C order; for BYTES, each element after its length in 4 bytes."""
    if array.dtype != np.object_:
        return array.tobytes()
    return b"".join(part for element in array.ravel() for part in (_LENGTH.pack(len(element)), element))


def bytes_array(elements: Sequence[bytes]) -> Array:
    """Create a flat BYTES array."""
    array = np.empty(len(elements), dtype=np.object_)
    array[:] = elements
    return array


def format_shape(shape: Sequence[int]) -> str:
    """Format a shape as Triton's messages do: [-1,3]."""
    return f"[{','.join(map(str, shape))}]"


def request_prefix(request_id: str) -> str:
    """Return the prefix of Triton's messages about a request."""
    return f"[request id: {request_id or '<id_unknown>'}] "


def _wrong_count(got: int, count: int, context: str) -> str:
    if got > count:
        return f"unexpected number of string elements {count + 1} {context}, expecting {count}"
    return f"expected {count} string elements {context}, got {got}"


def _elements(raw: memoryview, context: str, request_id: str) -> list[bytes]:
    """Split the elements of BYTES; raise InvalidInput if the last one is truncated."""
    elements, position = [], 0
    while position < len(raw):
        start = position + _LENGTH.size
        left = len(raw) - start
        if left < 0:
            expected = f"expecting {_LENGTH.size} bytes but only {len(raw) - position} bytes available"
            raise InvalidInput(f"{request_prefix(request_id)}incomplete string length indicator {context}, {expected}")
        length = _LENGTH.unpack_from(raw, position)[0]
        if length > left:
            expected = f"expecting string of length {length} but only {left} bytes available"
            raise InvalidInput(f"{request_prefix(request_id)}incomplete string data {context}, {expected}")
        position = start + length
        elements.append(bytes(raw[start:position]))
    return elements
