"""Parsing of requests whose number of fields is bounded.

A parsed field takes many times its bytes: 2 MB of empty submessages, of two bytes each, would become 50 MB. So fields
are counted before a request is parsed. Strings and bytes take no more memory than on the wire.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any, Generic, TypeVar

from google.protobuf.message import DecodeError

from moonfed.errors import InvalidInput

MAX_FIELDS = 4096  # of a request and all messages in it; the largest honest ones have a few hundred
_VARINT, _EIGHT_BYTES, _LENGTH, _FOUR_BYTES = 0, 1, 2, 5  # how a field is encoded
_MAX_VARINT = 10  # bytes
M = TypeVar("M")


def request_parser(deserialize: Callable[[bytes], M]) -> Callable[[bytes], M]:
    """Return a parser for the messages that a stub's `FromString` reads."""
    message: Any = getattr(deserialize, "__self__")  # noqa: B009 - of a class method
    return partial(_parse, deserialize, message.DESCRIPTOR)


def _parse(deserialize: Callable[[bytes], M], descriptor: Any, content: bytes) -> M:
    """Parse a request; InvalidInput if it has too many fields or is malformed."""
    try:
        _require_few_fields(content, descriptor)
        return deserialize(content)
    except (DecodeError, IndexError) as error:
        raise InvalidInput(f"the request is not a valid {descriptor.full_name}") from error


def parse_or_reject(parse: Callable[[bytes], M], content: bytes) -> M | InvalidInput:
    """Parse a stream's request; return an error instead of raising it, because gRPC would not report it to the caller.

    gRPC keeps a stream's last request until the next one: it must keep the parsed one, not its bytes as well.
    """
    try:
        return parse(content)
    except InvalidInput as problem:
        return problem


class ParsedRequests(Generic[M]):
    """The messages of a stream of requests; raises the error of an invalid one."""

    def __init__(self, messages: AsyncIterator[M | InvalidInput]) -> None:
        self._messages = messages

    def __aiter__(self) -> ParsedRequests[M]:
        return self

    async def __anext__(self) -> M:
        message = await anext(self._messages)
        if isinstance(message, InvalidInput):
            raise message
        return message


def _require_few_fields(content: bytes, descriptor: Any) -> None:
    """Raise InvalidInput if a message has too many fields, IndexError or DecodeError if it cannot be one."""
    fields = 0
    pending = [(0, len(content), descriptor)]
    while pending:
        position, end, message = pending.pop()
        while position < end:
            fields += 1
            if fields > MAX_FIELDS:
                raise InvalidInput(f"the request has more than {MAX_FIELDS} fields")
            tag, position = _varint(content, position)
            encoding = tag & 7
            if encoding == _LENGTH:
                length, position = _varint(content, position)
                known = message.fields_by_number.get(tag >> 3)
                if known is not None and known.message_type is not None:
                    pending.append((position, min(position + length, end), known.message_type))
                position += length
            elif encoding == _VARINT:
                _, position = _varint(content, position)
            elif encoding in (_EIGHT_BYTES, _FOUR_BYTES):
                position += 8 if encoding == _EIGHT_BYTES else 4
            # Else the start or the end of a group, whose fields are counted like the message's; unknown fields stay
            # as they are on the wire.


def _varint(content: bytes, position: int) -> tuple[int, int]:
    """Return a number and the position behind it."""
    value = content[position]
    if value < 0x80:
        return value, position + 1
    value &= 0x7F
    for index in range(1, _MAX_VARINT):
        byte = content[position + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, position + index + 1
    raise DecodeError("a number is too long")
