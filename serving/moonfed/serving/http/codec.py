"""Inference requests and responses over HTTP: JSON with tensors inside it or, with the binary extension, after it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, cast

import numpy as np

from moonfed.errors import InvalidInput
from moonfed.serving.http.json_fields import (
    Json,
    encode_text,
    flag,
    objects,
    parameters,
    parse_object,
    shape,
    text,
    whole_number,
)
from moonfed.serving.models.inference_request import Array, InferRequest, InferResponse, RequestedOutput
from moonfed.serving.models.tensor_codec import (
    BYTES,
    DTYPES,
    MAX_DIMENSIONS,
    bytes_array,
    datatype_of,
    decode,
    encode,
    format_shape,
    request_prefix,
    require_dimensions,
    require_few_outputs,
    reshaped,
)

_KINDS = {"b": "b", "u": "iu", "i": "iu", "f": "iuf"}  # numpy kinds of JSON values that each datatype kind accepts
_NUMBER_TYPES = {int, float, bool}
_KIND_NAMES = {"b": "booleans", "i": "whole numbers", "u": "whole numbers", "f": "fractions", "U": "strings"}


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputEncoding:
    """The outputs that a client wants as raw bytes; `default` applies to outputs that it does not name."""

    default: bool
    outputs: Mapping[str, bool]

    def is_binary(self, output: str) -> bool:
        """Return whether an output's tensor follows the JSON."""
        return self.outputs.get(output, self.default)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpBody:
    """A body whose first `header_length` bytes are JSON; None: all of it."""

    content: bytes
    header_length: int | None


def decode_request(
    body: bytes | bytearray, header_length: int | None, model: str, version: str
) -> tuple[InferRequest, OutputEncoding]:
    """Decode an inference request and the encoding of its response.

    Raises InvalidInput for a malformed request, ResourceExhausted for JSON that is too large.
    """
    end = len(body) if header_length is None else header_length
    if not 0 <= end <= len(body):
        raise InvalidInput(f"inference header size should be in range (0, {len(body)}), got: {end}")
    document = parse_object(body[:end])
    request_id = text(document, "id", "")
    options = parameters(document)
    raw = _BinaryData(memoryview(body).toreadonly()[end:], model)
    inputs: dict[str, Array] = {}
    for tensor in objects(document, "inputs"):
        name = text(tensor, "name")
        if name in inputs:
            raise InvalidInput(f"{request_prefix(request_id)}input '{name}' already exists in request")
        inputs[name] = _input(tensor, name, raw, model, request_id)
    raw.require_consumed()
    outputs = objects(document, "outputs") if "outputs" in document else []
    require_few_outputs(len(outputs), request_id)
    request = InferRequest(
        model=model,
        version=version,
        id=request_id,
        inputs=inputs,
        outputs=tuple(_requested_output(output) for output in outputs),
        timeout_us=whole_number(options, "timeout", 0),
    )
    return request, _output_encoding(options, outputs)


def encode_response(response: InferResponse, encoding: OutputEncoding) -> HttpBody:
    """Encode the body that answers a request."""
    outputs, parts = [], []
    for name, array in response.outputs.items():
        output: Json = {"name": name, "datatype": datatype_of(array), "shape": list(array.shape)}
        if encoding.is_binary(name):
            parts.append(encode(array))
            output["parameters"] = {"binary_data_size": len(parts[-1])}
        else:
            output["data"] = _values(name, array)
        outputs.append(output)
    named = {"id": response.id} if response.id else {}
    document = {"model_name": response.model, "model_version": response.version, **named, "outputs": outputs}
    header = json.dumps(document, separators=(",", ":")).encode()
    return HttpBody(content=b"".join([header, *parts]), header_length=len(header) if parts else None)


class _BinaryData:
    """The bytes after the JSON, read from the front."""

    def __init__(self, content: memoryview, model: str) -> None:
        self._content, self._model = content, model

    def read(self, size: int, name: str) -> memoryview:
        if size > len(self._content):
            raise InvalidInput(
                f"unexpected size for input '{name}', expecting {size - len(self._content)} additional bytes "
                f"for model '{self._model}'"
            )
        content, self._content = self._content[:size], self._content[size:]
        return content

    def require_consumed(self) -> None:
        if len(self._content):
            raise InvalidInput(f"unexpected additional input data for model '{self._model}'")


def _input(tensor: Json, name: str, raw: _BinaryData, model: str, request_id: str) -> Array:
    datatype = text(tensor, "datatype")
    dims = shape(tensor)
    options = parameters(tensor)
    if datatype not in DTYPES:
        raise InvalidInput(f"invalid datatype for input {name}: {datatype!r}; it must be one of {', '.join(DTYPES)}")
    _require_one_source(tensor, options)
    if "shared_memory_region" in options:
        raise InvalidInput(f"input '{name}' is in shared memory, which this server does not offer; send its bytes")
    if "binary_data_size" in options:
        content = raw.read(whole_number(options, "binary_data_size", 0), name)
        return decode(content, datatype, dims, name=name, model=model, request_id=request_id)
    if not isinstance(tensor.get("data"), list):
        raise InvalidInput(f"Unable to parse 'data' of input '{name}': it must be an array")
    require_dimensions(dims, name)
    array = _strings(tensor["data"], name) if datatype == BYTES else _numbers(tensor["data"], datatype, name)
    if array.size != math.prod(dims):
        raise InvalidInput(
            f"Unable to parse 'data': Shape does not match true shape of 'data' field: input '{name}' is "
            f"{format_shape(dims)}, with {array.size} values"
        )
    return reshaped(array, dims, name)


def _require_one_source(tensor: Json, options: Json) -> None:
    given = [f"'{key}'" for key in ("data",) if key in tensor]
    given += [f"'{key}'" for key in ("binary_data_size", "shared_memory_region") if key in options]
    if len(given) != 1:
        raise InvalidInput(
            "Input must set only one of the following fields: 'data', 'binary_data_size' in 'parameters', "
            f"'shared_memory_region' in 'parameters'. But {'set ' + ' '.join(given) if given else 'no field is set'}"
        )


def _strings(data: list[Any], name: str) -> Array:
    elements: list[bytes] = []
    pending = [iter(data)]
    while pending:
        for each in pending[-1]:
            if isinstance(each, list):
                pending.append(iter(each))
                break
            if not isinstance(each, str):
                raise InvalidInput(
                    f"Unable to parse JSON bytes array: input '{name}' has an element that is not a string"
                )
            elements.append(encode_text(each, name))
        else:
            pending.pop()
    return bytes_array(elements)


def _numbers(data: list[Any], datatype: str, name: str) -> Array:
    """Convert JSON numbers; raise InvalidInput for a value of another kind or outside the datatype's range."""
    dtype = DTYPES[datatype]
    rejection = f"Unable to parse 'data' of input '{name}': it must be an array of {datatype}"
    flat, types = _flattened(data, rejection)
    if not types <= _NUMBER_TYPES:  # numpy would give every element the length of the longest text
        raise InvalidInput(f"{rejection}, not of {'strings' if str in types else 'objects'}")
    found = np.array(flat)  # objects if an integer has more than 64 bits, which no datatype permits
    if not found.size:
        return found.astype(dtype)
    if dtype.kind == "u" and found.dtype.kind == "f":
        found = _exact_integers(flat, found)
    if found.dtype.kind not in _KINDS[dtype.kind]:
        raise InvalidInput(f"{rejection}, not of {_KIND_NAMES.get(found.dtype.kind, found.dtype.name)}")
    if dtype.kind in "iu":
        bounds = np.iinfo(cast("np.dtype[np.integer[Any]]", dtype))
        low, high = int(found.min()), int(found.max())
        if low < bounds.min or high > bounds.max:
            raise InvalidInput(f"{rejection}, from {bounds.min} to {bounds.max}; it has values from {low} to {high}")
    with np.errstate(over="ignore"):  # too large a value becomes infinite
        return found.astype(dtype)


def _flattened(data: list[Any], rejection: str) -> tuple[list[Any], set[type]]:
    """Return the values of nested arrays and their types; raise InvalidInput unless the arrays have equal lengths."""
    level = data
    for _ in range(MAX_DIMENSIONS):
        types = set(map(type, level))
        if list not in types:
            return level, types
        if len(types) > 1 or len(set(map(len, level))) > 1:
            raise InvalidInput(f"{rejection} whose nested arrays have equal lengths")
        level = list(chain.from_iterable(level))
    raise InvalidInput(f"{rejection}, nested at most {MAX_DIMENSIONS} deep")


def _exact_integers(flat: list[Any], converted: Array) -> Array:
    """Restore integers that numpy read as floats because a list has some below and some from 2**63; keep the rest."""
    exact = np.array(flat, dtype=np.object_)
    if all(type(value) is int and 0 <= value < 1 << 64 for value in flat):
        return exact.astype(np.uint64)
    return converted


def _values(name: str, array: Array) -> list[Any]:
    if array.dtype != np.object_:
        return array.ravel().tolist()
    try:
        return [element.decode() for element in array.ravel()]
    except UnicodeDecodeError as error:
        raise InvalidInput(f"output '{name}' is not UTF-8 ({error}); request it with binary_data") from error


def _requested_output(output: Json) -> RequestedOutput:
    name, options = text(output, "name"), parameters(output)
    if "shared_memory_region" in options:
        raise InvalidInput(f"output '{name}' is requested in shared memory, which this server does not offer")
    return RequestedOutput(name=name, class_count=whole_number(options, "classification", 0))


def _output_encoding(options: Json, outputs: Sequence[Json]) -> OutputEncoding:
    default = flag(options, "binary_data_output", False)
    named = {text(output, "name"): flag(parameters(output), "binary_data", default) for output in outputs}
    return OutputEncoding(default=default, outputs=named)
