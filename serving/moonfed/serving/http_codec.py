"""Inference requests and answers over HTTP: JSON, with tensors in it or, by the binary extension, after it."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from moonfed.errors import InvalidInput, ResourceExhausted
from moonfed.serving.inference_request import Array, InferRequest, InferResponse, RequestedOutput
from moonfed.serving.tensor_codec import (
    BYTES,
    DTYPES,
    bytes_array,
    datatype_of,
    decode,
    encode,
    format_shape,
    request_prefix,
)

Json = dict[str, Any]
_WINDOWS = {"gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}  # deflate is zlib's format in HTTP
ENCODINGS = tuple(_WINDOWS)
_KINDS = {"b": "b", "u": "iu", "i": "iu", "f": "iuf"}  # which numbers of JSON fit which datatypes, as numpy's kinds
_IN_WORDS = {"b": "booleans", "i": "whole numbers", "u": "whole numbers", "f": "fractions", "U": "strings"}


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputEncoding:
    """Which outputs a client wants as raw bytes; those that it does not name are as `default`."""

    default: bool
    outputs: Mapping[str, bool]

    def is_binary(self, output: str) -> bool:
        """Whether an output's tensor goes after the JSON."""
        return self.outputs.get(output, self.default)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpBody:
    """A body, of which the first `header_length` bytes are JSON; None: all of it."""

    content: bytes
    header_length: int | None


def infer_request(
    body: bytes, header_length: int | None, model: str, version: str
) -> tuple[InferRequest, OutputEncoding]:
    """An inference request and the form of its answer; raises InvalidInput if it is not one."""
    end = len(body) if header_length is None else header_length
    if not 0 <= end <= len(body):
        raise InvalidInput(f"inference header size should be in range (0, {len(body)}), got: {end}")
    document = _object(body[:end])
    request_id = _text(document, "id", "")
    parameters = _parameters(document)
    raw = _BinaryData(memoryview(body)[end:], model)
    inputs: dict[str, Array] = {}
    for tensor in _objects(document, "inputs"):
        name = _text(tensor, "name")
        if name in inputs:
            raise InvalidInput(f"{request_prefix(request_id)}input '{name}' already exists in request")
        inputs[name] = _input(tensor, name, raw, model, request_id)
    raw.end()
    wanted = _objects(document, "outputs") if "outputs" in document else []
    request = InferRequest(
        model=model,
        version=version,
        id=request_id,
        inputs=inputs,
        outputs=tuple(_requested_output(output) for output in wanted),
        timeout_us=_whole_number(parameters, "timeout", 0),
    )
    return request, _form(parameters, wanted)


def infer_response(response: InferResponse, form: OutputEncoding) -> HttpBody:
    """The body that answers a request."""
    outputs, parts = [], []
    for name, array in response.outputs.items():
        output: Json = {"name": name, "datatype": datatype_of(array), "shape": list(array.shape)}
        if form.is_binary(name):
            parts.append(encode(array))
            output["parameters"] = {"binary_data_size": len(parts[-1])}
        else:
            output["data"] = _values(name, array)
        outputs.append(output)
    named = {"id": response.id} if response.id else {}
    document = {"model_name": response.model, "model_version": response.version, **named, "outputs": outputs}
    header = json.dumps(document, separators=(",", ":")).encode()
    return HttpBody(content=b"".join([header, *parts]), header_length=len(header) if parts else None)


def decompress(body: bytes, encoding: str, limit: int) -> bytes:
    """A request's body as it was before it was compressed; raises ResourceExhausted if that is more than the limit."""
    if encoding == "identity":
        return body
    reader = zlib.decompressobj(_WINDOWS[encoding])
    try:
        found = reader.decompress(body, limit + 1)
    except zlib.error as error:
        raise InvalidInput(f"the body is not {encoding}: {error}") from error
    if len(found) > limit:
        raise ResourceExhausted(f"the body is more than {limit} bytes when it is decompressed, the most that is taken")
    if not reader.eof:
        raise InvalidInput(f"the body is not {encoding}: its end is missing")
    return found


def compress(body: bytes, encoding: str) -> bytes:
    """A body as gzip or deflate."""
    writer = zlib.compressobj(level=1, wbits=_WINDOWS[encoding])  # for a network, where speed is the point
    return writer.compress(body) + writer.flush()


def accepted_encoding(header: str) -> str:
    """The encoding to answer with, of those that an Accept-Encoding header names; "" for none."""
    best, weight = "", 0.0
    for part in header.split(","):
        name, _, quality = part.partition(";")
        value = _quality(quality)
        if name.strip() in ("identity", *ENCODINGS) and value > weight:
            best, weight = name.strip(), value
    return "" if best == "identity" else best


def _quality(text: str) -> float:
    if not text.strip():
        return 1.0
    try:
        return float(text.strip().removeprefix("q="))
    except ValueError:
        return 0.0


class _BinaryData:
    """The bytes after the JSON, taken from the front."""

    def __init__(self, content: memoryview, model: str) -> None:
        self._content, self._model = content, model

    def take(self, size: int, name: str) -> memoryview:
        if size > len(self._content):
            raise InvalidInput(
                f"unexpected size for input '{name}', expecting {size - len(self._content)} additional bytes "
                f"for model '{self._model}'"
            )
        taken, self._content = self._content[:size], self._content[size:]
        return taken

    def end(self) -> None:
        if len(self._content):
            raise InvalidInput(f"unexpected additional input data for model '{self._model}'")


def _input(tensor: Json, name: str, raw: _BinaryData, model: str, request_id: str) -> Array:
    datatype, shape, parameters = _text(tensor, "datatype"), _shape(tensor), _parameters(tensor)
    if datatype not in DTYPES:
        raise InvalidInput(f"invalid datatype for input {name}: {datatype!r}; it must be one of {', '.join(DTYPES)}")
    _require_one_source(tensor, parameters)
    if "shared_memory_region" in parameters:
        raise InvalidInput(f"input '{name}' is in shared memory, which this server does not offer; send its bytes")
    if "binary_data_size" in parameters:
        content = raw.take(_whole_number(parameters, "binary_data_size", 0), name)
        return decode(content, datatype, shape, name=name, model=model, request_id=request_id)
    if not isinstance(tensor.get("data"), list):
        raise InvalidInput(f"Unable to parse 'data' of input '{name}': it must be an array")
    array = _strings(tensor["data"], name) if datatype == BYTES else _numbers(tensor["data"], datatype, name)
    if array.size != np.prod(shape, dtype=np.int64):
        raise InvalidInput(
            f"Unable to parse 'data': Shape does not match true shape of 'data' field: input '{name}' is "
            f"{format_shape(shape)}, with {array.size} values"
        )
    return array.reshape(shape)


def _require_one_source(tensor: Json, parameters: Json) -> None:
    given = [f"'{key}'" for key in ("data",) if key in tensor]
    given += [f"'{key}'" for key in ("binary_data_size", "shared_memory_region") if key in parameters]
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
                raise InvalidInput(f"Unable to parse JSON bytes array: input '{name}' has an element that is no string")
            elements.append(each.encode())
        else:
            pending.pop()
    return bytes_array(elements)


def _numbers(data: list[Any], datatype: str, name: str) -> Array:
    """Raises InvalidInput for a value that is not of the datatype's kind, or outside its range."""
    dtype = DTYPES[datatype]
    refusal = f"Unable to parse 'data' of input '{name}': it must be an array of {datatype}"
    try:
        found = np.array(data)
    except ValueError as error:
        raise InvalidInput(f"{refusal}: {error}") from error
    if not found.size:
        return found.astype(dtype)
    if found.dtype.kind not in _KINDS[dtype.kind]:
        raise InvalidInput(f"{refusal}, not of {_IN_WORDS.get(found.dtype.kind, found.dtype.name)}")
    if dtype.kind in "iu":
        bounds = np.iinfo(cast("np.dtype[np.integer[Any]]", dtype))
        low, high = int(found.min()), int(found.max())
        if low < bounds.min or high > bounds.max:
            raise InvalidInput(f"{refusal}, from {bounds.min} to {bounds.max}; it has values from {low} to {high}")
    with np.errstate(over="ignore"):  # what is too large becomes infinite
        return found.astype(dtype)


def _values(name: str, array: Array) -> list[Any]:
    if array.dtype != np.object_:
        return array.ravel().tolist()
    try:
        return [element.decode() for element in array.ravel()]
    except UnicodeDecodeError as error:
        raise InvalidInput(f"output '{name}' is not UTF-8; ask for it with binary_data, {error}") from error


def _requested_output(output: Json) -> RequestedOutput:
    name, parameters = _text(output, "name"), _parameters(output)
    if "shared_memory_region" in parameters:
        raise InvalidInput(f"output '{name}' is wanted in shared memory, which this server does not offer")
    return RequestedOutput(name=name, class_count=_whole_number(parameters, "classification", 0))


def _form(parameters: Json, wanted: Sequence[Json]) -> OutputEncoding:
    default = _flag(parameters, "binary_data_output", False)
    named = {_text(each, "name"): _flag(_parameters(each), "binary_data", default) for each in wanted}
    return OutputEncoding(default=default, outputs=named)


def _object(content: bytes) -> Json:
    try:
        document = json.loads(content)
    except ValueError as error:
        raise InvalidInput(f"failed to parse the request JSON buffer: {error}") from error
    if not isinstance(document, dict):
        raise InvalidInput("failed to parse the request JSON buffer: it must be an object")
    return document


def _objects(document: Json, key: str) -> list[Json]:
    found = document.get(key)
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise InvalidInput(f"Unable to parse '{key}': it must be an array of objects")
    return found


def _text(document: Json, key: str, default: str | None = None) -> str:
    found = document.get(key, default)
    if not isinstance(found, str):
        raise InvalidInput(f"Unable to parse '{key}': it must be a string")
    return found


def _shape(tensor: Json) -> list[int]:
    found = tensor.get("shape")
    if not isinstance(found, list) or not all(type(each) is int and each >= 0 for each in found):
        raise InvalidInput("Unable to parse 'shape': it must be an array of whole numbers, 0 or more")
    return found


def _parameters(document: Json) -> Json:
    found = document.get("parameters", {})
    if not isinstance(found, dict):
        raise InvalidInput("Unable to parse 'parameters': it must be an object")
    return found


def _whole_number(parameters: Json, key: str, default: int) -> int:
    found = parameters.get(key, default)
    if type(found) is not int or found < 0:
        raise InvalidInput(f"Unable to parse '{key}': it must be a whole number, 0 or more")
    return found


def _flag(parameters: Json, key: str, default: bool) -> bool:
    found = parameters.get(key, default)
    if not isinstance(found, bool):
        raise InvalidInput(f"Unable to parse '{key}': it must be true or false")
    return found
