"""Responses in JSON: errors with their status, and lists that are written while they are read."""

from __future__ import annotations

import json
import math
import re
from collections.abc import AsyncIterator, Callable
from typing import Any

from starlette.convertors import IntegerConvertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from moonfed import errors
from moonfed.coordinator.console.access import LoginRequired
from moonfed.errors import InvalidInput, MoonfedError

_NO_TEXT = re.compile("[\0\ud800-\udfff]")
_MOST_QUOTED = 200  # characters of a request's value in an error
CHUNK = 32 * 1024  # bytes of a list that are sent together
_STATUSES: tuple[tuple[type[MoonfedError], int], ...] = (
    (errors.InvalidInput, 400),
    (errors.NotFound, 404),
    (errors.AlreadyExists, 409),
    (errors.WrongState, 409),
    (errors.Denied, 403),
    (LoginRequired, 401),
    (errors.ResourceExhausted, 507),
    (errors.Unavailable, 503),
)


class _NumberConvertor(IntegerConvertor):
    """A number in a path. Python converts none of thousands of digits, and messages have no large ones."""

    regex = "[0-9]{1,9}"


register_url_convertor("number", _NumberConvertor())


def error_response(error: MoonfedError) -> JSONResponse:
    """Return an error's sentence."""
    status = next((status for kind, status in _STATUSES if isinstance(error, kind)), 502)
    return JSONResponse({"error": str(error)}, status)


async def answer_error(_: Request, error: Exception) -> Response:
    """Answer a MoonfedError, as Starlette's handlers do."""
    return error_response(error) if isinstance(error, MoonfedError) else JSONResponse({"error": "internal error"}, 500)


async def rows_response(rows: AsyncIterator[Any], document: Callable[[Any], object], **head: object) -> Response:
    """Return `head` with a list under "rows", of which only a chunk is in memory at a time.

    An error before the first row is raised; a later one breaks the response off, which browsers report.
    """
    try:
        first = [await anext(rows)]
    except StopAsyncIteration:
        first = []

    async def chunks() -> AsyncIterator[bytes]:
        parts, size = [_json(head)[:-1] + (b"," if head else b"") + b'"rows":['], 0
        separator = b""
        for row in first:
            parts.append(_json(document(row)))
            separator = b","
        async for row in rows:
            parts += [separator, _json(document(row))]
            size += len(parts[-1])
            if size > CHUNK:
                yield b"".join(parts)
                parts, size = [], 0
        yield b"".join(parts) + b"]}"

    return StreamingResponse(chunks(), media_type="application/json")


async def read_object(request: Request) -> dict[str, Any]:
    """Return the JSON object in a request's body; InvalidInput for anything else, and for text that is no UTF-8."""
    try:
        document = json.loads(await request.body(), parse_constant=_reject)
    except (ValueError, RecursionError) as error:
        raise InvalidInput("the body is not JSON") from error
    if not isinstance(document, dict):
        raise InvalidInput("the body must be a JSON object")
    _require_text(document)
    return document


def _require_text(value: object) -> None:
    """Raise InvalidInput if a text within a JSON value has a lone surrogate or NUL, which few programs can store."""
    if isinstance(value, dict):
        for name, each in value.items():
            _require_text(name)
            _require_text(each)
    elif isinstance(value, list):
        for each in value:
            _require_text(each)
    elif isinstance(value, str) and _NO_TEXT.search(value):
        raise InvalidInput("the body has text with a lone surrogate or NUL, which is not allowed")


def _reject(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def text(document: dict[str, Any], name: str, default: str | None = None) -> str:
    """Return a text of a request; InvalidInput if it is another type, or missing without a default."""
    value = document.get(name, default)
    if not isinstance(value, str):
        raise InvalidInput(f"{name} is {_short(value)}; it must be a string")
    return value


def number(document: dict[str, Any], name: str, default: float | None = None) -> float:
    """Return a number of a request; InvalidInput if it is another type, or missing without a default."""
    value = document.get(name, default)
    try:
        if not isinstance(value, bool) and isinstance(value, int | float) and math.isfinite(value):
            return value
    except OverflowError:  # of an integer
        pass
    raise InvalidInput(f"{name} is {_short(value)}; it must be a number")


def whole(document: dict[str, Any], name: str, most: int = 2**31 - 1) -> int:
    """Return a whole number from 0 of a request; InvalidInput for anything else."""
    value = document.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise InvalidInput(f"{name} is {_short(value)}; it must be a whole number from 0")
    return value


def _short(value: object) -> str:
    return repr(value)[:_MOST_QUOTED]


def _json(document: object) -> bytes:
    return json.dumps(document, separators=(",", ":"), allow_nan=False).encode()
