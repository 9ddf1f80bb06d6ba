"""Conversion between records and messages of the Control service, by the names of their fields.

A record's message has the record's name, and its fields the names of the record's; those that a record derives from
others are not sent. A record and a message that differ are an error when this module is imported.

| in a record | in a message |
| --- | --- |
| text, a number, a truth value | the same; one that may be None: optional |
| a word out of several (Literal) | a string |
| a time | a double, in seconds since the epoch; None: 0 |
| settings of a run | JSON with the keys of a recipe |
| another record | its message; one that may be None: absent |
| a tuple, a mapping | a repeated field, a map |
| an event | a RunEvent with the fields of this event, and its kind |
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime
from functools import partial
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from moonfed.blobs.store import BlobRef
from moonfed.control import devices, evaluations, events, operators, privacy, releases, runs
from moonfed.control.run_settings import RunSettings
from moonfed.errors import Corrupt
from moonfed.formatting import LAST, moment
from moonfed.v1 import blob_pb2, control_pb2

RECORDS: tuple[type[Any], ...] = (
    devices.Device,
    devices.NewToken,
    devices.Token,
    evaluations.Evaluation,
    operators.AuditRecord,
    operators.Operator,
    privacy.PrivacyReport,
    releases.DeployedDevice,
    releases.Deployment,
    releases.Release,
    runs.Round,
    runs.RoundOutcomes,
    runs.Run,
)

Record = TypeVar("Record")
Sent = TypeVar("Sent", bound=Message)
Convert = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class _Field:
    """A field of a record; `encode` and `decode` convert a value that is there."""

    name: str
    encode: Convert
    decode: Convert
    optional: bool = False  # it may be None
    presence: bool = False  # a message tells whether it has the field
    zero_is_none: bool = False  # None is sent as 0


def to_message(kind: type[Sent], record: object) -> Sent:
    """Return a record's message, which is of that type."""
    message = _encode(record)
    assert isinstance(message, kind)  # noqa: S101 - our own call
    return message


def _encode(record: object) -> Message:
    kind = type(record)
    if kind in _EVENT_FIELDS:
        return control_pb2.RunEvent(kind=events.NAMES[kind], **_values(_EVENT_FIELDS[kind], record))
    message, known = _MESSAGES[kind]
    return message(**_values(known, record))


def from_message(kind: type[Record], message: Message) -> Record:
    """Return the record of a message; raises Corrupt if it is malformed."""
    return _read(kind, _MESSAGES[kind][1], message)


def from_values(kind: type[Record], source: object, **others: object) -> Record:
    """Return a record of values that have its fields' names, times in seconds as in messages; and of `others`."""
    get = source.__getitem__ if isinstance(source, Mapping) else partial(getattr, source)
    values = dict(others)
    for field in _MESSAGES[kind][1]:
        if field.name not in others:
            value = get(field.name)
            absent = value is None or (field.zero_is_none and not value)
            values[field.name] = None if absent else field.decode(value)
    return kind(**values)


def read_event(message: control_pb2.RunEvent) -> events.RunEvent | None:
    """Return the event of a message; None for one of a kind that this release does not know."""
    kind = events.KINDS.get(message.kind)
    return cast(events.RunEvent, _read(kind, _EVENT_FIELDS[kind], message)) if kind else None


def _values(known: tuple[_Field, ...], record: object) -> dict[str, Any]:
    found = {field.name: (field, getattr(record, field.name)) for field in known}
    return {name: field.encode(value) for name, (field, value) in found.items() if value is not None}


def _read(kind: type[Record], known: tuple[_Field, ...], message: Message) -> Record:
    values: dict[str, Any] = {}
    for field in known:
        value = getattr(message, field.name)
        absent = not value if field.zero_is_none else field.presence and not message.HasField(field.name)
        if absent and not field.optional:
            raise _malformed(message, field, "is missing")
        try:
            values[field.name] = None if absent else field.decode(value)
        except ValueError as error:
            raise _malformed(message, field, str(error)) from error
    return kind(**values)


def _malformed(message: Message, field: _Field, problem: str) -> Corrupt:
    place = f"{message.DESCRIPTOR.name}.{field.name}"
    return Corrupt(f"the coordinator's reply is malformed: {place} {problem}", field=place)


# Fields, built once


def _fields(kind: type[Any], message: type[Message]) -> tuple[_Field, ...]:
    """Return a record's fields, in which it must agree with a message."""
    hints, known = get_type_hints(kind), message.DESCRIPTOR.fields_by_name
    names = [field.name for field in fields(kind) if field.init]
    if unknown := sorted(set(names) - set(known)):
        raise TypeError(f"message {message.DESCRIPTOR.name} lacks {', '.join(unknown)} of {kind.__name__}")
    return tuple(_field(cast(FieldDescriptor, known[name]), hints[name], f"{kind.__name__}.{name}") for name in names)


def _field(sent: FieldDescriptor, hint: Any, place: str) -> _Field:  # noqa: ANN401 - a type
    optional = get_origin(hint) in (Union, UnionType)
    held = next(one for one in get_args(hint) if one is not NoneType) if optional else hint
    zero_is_none = optional and held is datetime
    repeated = get_origin(held) in (tuple, Mapping)
    presence = (is_dataclass(held) and held is not RunSettings) or (optional and not zero_is_none)
    if (sent.is_repeated, sent.has_presence) != (repeated, presence):
        raise TypeError(f"{place} and {sent.full_name} are not of the same kind")
    if get_origin(held) is tuple:
        item = _value(sent, get_args(held)[0], place)
        return _Field(sent.name, _each(item.encode), _each(item.decode))
    if repeated:
        item = _value(_entry_value(sent), get_args(held)[1], place)
        return _Field(sent.name, _by_name(item.encode), _by_name(item.decode))
    item = _value(sent, held, place)
    return _Field(sent.name, item.encode, item.decode, optional, presence, zero_is_none)


def _entry_value(sent: FieldDescriptor) -> FieldDescriptor:
    """Return the field of a map's values."""
    assert sent.message_type  # noqa: S101 - of a map
    return sent.message_type.fields_by_name["value"]


def _value(sent: FieldDescriptor, held: Any, place: str) -> _Field:  # noqa: ANN401 - a type
    """Return how one value is converted."""
    if held is RunSettings:
        _require_type(sent, str, place)
        return _Field(sent.name, RunSettings.to_json, RunSettings.received)
    if is_dataclass(held):
        kind = cast(type[Any], held)
        message, known = _register(kind)
        if sent.message_type is not message.DESCRIPTOR:
            raise TypeError(f"{place} is not sent as {kind.__name__}")
        return _Field(sent.name, _encode, lambda value: _read(kind, known, value))
    if get_origin(held) is Literal:
        _require_type(sent, str, place)
        return _Field(sent.name, _same, _word(get_args(held)))
    if held is datetime:
        _require_type(sent, float, place)
        return _Field(sent.name, datetime.timestamp, _time)
    _require_type(sent, held, place)
    return _Field(sent.name, _same, _same)


def _require_type(sent: FieldDescriptor, held: type, place: str) -> None:
    if _TYPES.get(sent.cpp_type) is not held:
        raise TypeError(f"{place} and {sent.full_name} are not of the same type")


def _register(kind: type[Any]) -> tuple[type[Message], tuple[_Field, ...]]:
    """Return a record's message and fields; raise TypeError unless both have the same."""
    if kind not in _MESSAGES:
        message = _OTHER_NAMES.get(kind) or getattr(control_pb2, kind.__name__)
        known = _fields(kind, message)
        if extra := sorted(set(message.DESCRIPTOR.fields_by_name) - {field.name for field in known}):
            raise TypeError(f"record {kind.__name__} lacks {', '.join(extra)} of its message")
        _MESSAGES[kind] = message, known
    return _MESSAGES[kind]


def _same(value: Any) -> Any:  # noqa: ANN401
    return value


def _each(convert: Convert) -> Convert:
    return tuple if convert is _same else lambda values: tuple(map(convert, values))


def _by_name(convert: Convert) -> Convert:
    """Convert a mapping's values, sorted by name, since messages have no order."""
    return lambda values: {name: convert(values[name]) for name in sorted(values)}


def _word(allowed: tuple[str, ...]) -> Convert:
    def read(word: str) -> str:
        if word not in allowed:
            raise ValueError(f"is {word!r}; it must be one of {', '.join(allowed)}")
        return word

    return read


def _time(seconds: float) -> datetime:
    if not (math.isfinite(seconds) and seconds >= 0):
        raise ValueError(f"is {seconds}; it must be a time in seconds")
    return moment(min(seconds, LAST))


_TYPES: Mapping[int, type] = {
    FieldDescriptor.CPPTYPE_STRING: str,
    FieldDescriptor.CPPTYPE_BOOL: bool,
    FieldDescriptor.CPPTYPE_DOUBLE: float,
    FieldDescriptor.CPPTYPE_UINT32: int,
    FieldDescriptor.CPPTYPE_UINT64: int,
}
_OTHER_NAMES: Mapping[type[Any], type[Message]] = {BlobRef: blob_pb2.Blob}
_MESSAGES: dict[type[Any], tuple[type[Message], tuple[_Field, ...]]] = {}
for _record in RECORDS:
    _register(_record)
_EVENT_FIELDS: Mapping[type[Any], tuple[_Field, ...]] = {
    kind: _fields(kind, control_pb2.RunEvent) for kind in events.KINDS.values()
}
if _extra := set(control_pb2.RunEvent.DESCRIPTOR.fields_by_name).difference(
    {"kind"}, *({field.name for field in known} for known in _EVENT_FIELDS.values())
):
    raise TypeError(f"no event has {', '.join(sorted(_extra))} of RunEvent")
