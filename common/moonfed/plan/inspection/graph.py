"""Inspection of an ONNX graph: it must contain its tensors, and name no other file.

A tensor may refer to a file for its data, which a program opens when it reads the graph: a key, for example, which
would then become part of a released model. This reads the protobuf wire format, because a coordinator has no onnx.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from moonfed.errors import Corrupt, InvalidInput

# onnx.proto3: of each message, the fields that are messages which may hold tensors, by number
_MODEL, _TRAINING, _GRAPH, _NODE, _ATTRIBUTE, _SPARSE, _FUNCTION, _TENSOR = range(8)
_CHILDREN: Mapping[int, Mapping[int, int]] = MappingProxyType(
    {
        _MODEL: {7: _GRAPH, 20: _TRAINING, 25: _FUNCTION},
        _TRAINING: {1: _GRAPH, 2: _GRAPH},
        _GRAPH: {1: _NODE, 5: _TENSOR, 15: _SPARSE},
        _NODE: {5: _ATTRIBUTE},
        _ATTRIBUTE: {5: _TENSOR, 6: _GRAPH, 10: _TENSOR, 11: _GRAPH, 22: _SPARSE, 23: _SPARSE},
        _SPARSE: {1: _TENSOR, 2: _TENSOR},
        _FUNCTION: {7: _NODE, 11: _ATTRIBUTE},
        _TENSOR: {},
    }
)
_NAME, _EXTERNAL_DATA, _DATA_LOCATION = 8, 13, 14  # of a tensor
_VARINT = 0
_FIXED64 = 1
_BYTES = 2
_FIXED32 = 5


def require_self_contained(graph: bytes, where: str = "the graph") -> None:
    """Raise InvalidInput naming a tensor whose data are in another file, Corrupt for bytes that are not ONNX."""
    pending = [(_MODEL, memoryview(graph))]
    while pending:
        kind, message = pending.pop()
        try:
            fields = list(fields_of(message))
        except (IndexError, ValueError) as error:
            raise Corrupt(f"{where} is not an ONNX model, or is damaged") from error
        for number, value in fields:
            if isinstance(value, memoryview) and number in _CHILDREN[kind]:
                pending.append((_CHILDREN[kind][number], value))
        if kind == _TENSOR:
            _require_inline(fields, where)


def _require_inline(fields: list[tuple[int, int | memoryview]], where: str) -> None:
    if any(number == _EXTERNAL_DATA or (number == _DATA_LOCATION and value) for number, value in fields):
        names = [bytes(value) for number, value in fields if number == _NAME and isinstance(value, memoryview)]
        name = names[-1].decode("utf-8", "replace") if names else ""
        raise InvalidInput(
            f"{where} has a tensor {name!r} whose data are in another file; it must contain its tensors",
            field="external tensor",
            value=name,
        )


def fields_of(message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Yield the number and value of each field; bytes are not copied. Raises IndexError or ValueError if damaged."""
    position = 0
    while position < len(message):
        key, position = _varint(message, position)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, position = _varint(message, position)
            yield number, value
            continue
        if kind == _BYTES:
            size, position = _varint(message, position)
        elif kind in (_FIXED32, _FIXED64):
            size = 4 if kind == _FIXED32 else 8
        else:
            raise ValueError("groups do not exist in ONNX")
        if position + size > len(message):
            raise IndexError("the field is longer than its message")
        yield number, message[position : position + size]
        position += size


def _varint(message: memoryview, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise ValueError("a varint has at most ten bytes")


def varints_of(packed: memoryview) -> list[int]:
    """Return packed integers; raises IndexError or ValueError if they are damaged."""
    position, values = 0, list[int]()
    while position < len(packed):
        value, position = _varint(packed, position)
        values.append(value)
    return values
