"""Hypothesis strategies for arbitrary JSON values and protobuf messages, derived from descriptors alone."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar, cast

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from hypothesis import strategies as st

Json = Any
# What no field expects, in one place or another.
HOSTILE: list[Json] = [
    *(None, True, 0, -1, 2**64, 10**400, 0.5, 1e308, math.inf, math.nan),
    *("", "\ud800", "\x00", "..", "é" * 300, [], [[]], [None], {}, {"a": {}}),
]
M = TypeVar("M", bound=Message)
NUMBERS = [0, 1, -1, 2**31, 2**53, 2**63, 2**64, 10**400, 0.5, -0.0, 1e308, math.inf, -math.inf, math.nan]
JSON: st.SearchStrategy[Json] = st.recursive(
    st.none() | st.booleans() | st.sampled_from(NUMBERS) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
_BOUNDS = {
    FieldDescriptor.TYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.TYPE_UINT64: (0, 2**64 - 1),
    FieldDescriptor.TYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.TYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.TYPE_ENUM: (0, 20),
}


def messages(kind: type[M], words: Sequence[str] = ()) -> st.SearchStrategy[M]:
    """Messages with any values in any fields; `words` are among their strings."""
    return _message(cast(Descriptor, kind.DESCRIPTOR), tuple(words)).map(lambda fields: kind(**fields))


def _message(descriptor: Descriptor, words: tuple[str, ...]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional={field.name: _field(field, words) for field in descriptor.fields})


def _field(field: FieldDescriptor, words: tuple[str, ...]) -> st.SearchStrategy[Any]:
    if field.message_type and field.message_type.GetOptions().map_entry:
        key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        return st.dictionaries(_value(key, words), _value(value, words), max_size=3)
    one = _value(field, words)
    return st.lists(one, max_size=3) if field.is_repeated else one


def _value(field: FieldDescriptor, words: tuple[str, ...]) -> st.SearchStrategy[Any]:
    if field.message_type:
        kind = GetMessageClass(field.message_type)
        return _message(field.message_type, words).map(lambda fields: kind(**fields))
    if field.type == FieldDescriptor.TYPE_STRING:
        return st.sampled_from(words) | st.text(max_size=12) if words else st.text(max_size=12)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return st.binary(max_size=64)
    if field.type == FieldDescriptor.TYPE_BOOL:
        return st.booleans()
    if field.type == FieldDescriptor.TYPE_DOUBLE:
        return st.floats()
    least, most = _BOUNDS[field.type]
    return st.sampled_from([least, most, 1, 2]) | st.integers(least, most)


def all_spoilt(document: Json) -> Iterator[Json]:
    """The document with each of its parts in turn removed, and replaced by each hostile value."""
    yield from HOSTILE
    if isinstance(document, dict):
        for key, value in document.items():
            yield {name: other for name, other in document.items() if name != key}
            yield from ({**document, key: part} for part in all_spoilt(value))
    if isinstance(document, list):
        for at, value in enumerate(document):
            yield from ([*document[:at], part, *document[at + 1 :]] for part in all_spoilt(value))


@st.composite
def spoilt(draw: st.DrawFn, document: Json) -> Json:
    """A JSON document in which one part, anywhere, is replaced by another value or removed."""
    if isinstance(document, dict) and document and draw(st.integers(0, 9)):
        key = draw(st.sampled_from(sorted(document)))
        if draw(st.integers(0, 9)) == 0:
            return {name: value for name, value in document.items() if name != key}
        return {**document, key: draw(spoilt(document[key]))}
    if isinstance(document, list) and document and draw(st.integers(0, 9)):
        at = draw(st.integers(0, len(document) - 1))
        return [*document[:at], draw(spoilt(document[at])), *document[at + 1 :]]
    return draw(JSON)


@st.composite
def damaged(draw: st.DrawFn, content: bytes) -> bytes:
    """Bytes of which some are changed, cut off, put in or repeated."""
    at, end = sorted(draw(st.tuples(st.integers(0, len(content)), st.integers(0, len(content)))))
    middle = draw(st.binary(max_size=16) | st.just(content[at:end] * 2))
    return content[:at] + middle + content[end:]
