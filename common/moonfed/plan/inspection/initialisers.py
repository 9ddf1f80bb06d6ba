"""Tensors and metadata of an ONNX graph, read from the protobuf wire format: a coordinator has no onnx."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from moonfed.errors import Corrupt
from moonfed.plan.inspection.graph import fields_of, require_self_contained, varints_of

FLOAT = 1  # onnx.TensorProto.FLOAT
# onnx.proto3: numbers of fields
_GRAPH, _METADATA = 7, 14  # of a model
_INITIALISER = 5  # of a graph
_KEY, _VALUE = 1, 2  # of a metadata entry
_DIMENSIONS, _DATA_TYPE, _FLOATS, _NAME, _RAW = 1, 2, 4, 8, 9  # of a tensor


@dataclass(frozen=True, slots=True)
class Initialiser:
    """A tensor of the graph."""

    shape: tuple[int, ...]
    data_type: int  # onnx.TensorProto.DataType
    data: memoryview  # little-endian


@dataclass(frozen=True, slots=True)
class GraphContents:
    """The named tensors of a graph, and its metadata."""

    initialisers: Mapping[str, Initialiser]
    metadata: Mapping[str, str]


def read_graph(graph: bytes, where: str = "the graph") -> GraphContents:
    """Read a graph that refers to no other file; raise InvalidInput, or Corrupt for bytes that are not ONNX."""
    require_self_contained(graph, where)
    model = memoryview(graph)
    try:
        metadata = dict(_entry(value) for value in _messages(model, _METADATA))
        tensors = (value for found in _messages(model, _GRAPH) for value in _messages(found, _INITIALISER))
        return GraphContents(dict(map(_initialiser, tensors)), metadata)
    except (IndexError, ValueError) as error:
        raise Corrupt(f"{where} is not an ONNX model, or is damaged") from error


def _messages(message: memoryview, wanted: int) -> Iterator[memoryview]:
    """Yield the values of a field of messages or bytes."""
    return (value for number, value in fields_of(message) if number == wanted and isinstance(value, memoryview))


def _entry(message: memoryview) -> tuple[str, str]:
    key, value = (b"".join(map(bytes, _messages(message, number))) for number in (_KEY, _VALUE))
    return key.decode(), value.decode()


def _initialiser(message: memoryview) -> tuple[str, Initialiser]:
    name = b""
    data = memoryview(b"")
    data_type = 0
    shape = list[int]()
    for number, value in fields_of(message):
        if number == _NAME and isinstance(value, memoryview):
            name = bytes(value)
        elif number in (_RAW, _FLOATS) and isinstance(value, memoryview):
            data = value
        elif number == _DATA_TYPE and isinstance(value, int):
            data_type = value
        elif number == _DIMENSIONS:  # packed, or one by one
            shape += [value] if isinstance(value, int) else varints_of(value)
    return name.decode(), Initialiser(tuple(shape), data_type, data)
