"""Lists are written while they are read; requests are checked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from starlette.responses import StreamingResponse

from moonfed.coordinator.console.access import LoginRequired
from moonfed.coordinator.console.responses import CHUNK, error_response, number, rows_response, text, whole
from moonfed.errors import Corrupt, Denied, InvalidInput, MoonfedError, NotFound, Unavailable, Untrusted, WrongState


async def numbers(most: int, failing: bool = False) -> AsyncIterator[int]:
    for value in range(most):
        yield value
    if failing:
        raise NotFound("there is no run 'r'")


def chunks(rows: AsyncIterator[int], **head: object) -> list[bytes]:
    async def read() -> list[bytes]:
        response = await rows_response(rows, lambda row: {"n": row}, **head)
        assert isinstance(response, StreamingResponse)
        return [bytes(part) async for part in response.body_iterator]  # type: ignore[arg-type]

    return asyncio.run(read())


@pytest.mark.parametrize("most", [0, 1, 3])
def test_rows_follow_the_head(most: int) -> None:
    written = b"".join(chunks(numbers(most), name="x"))
    assert json.loads(written) == {"name": "x", "rows": [{"n": value} for value in range(most)]}


def test_long_lists_are_sent_in_parts() -> None:
    found = chunks(numbers(20_000))
    assert len(found) > 3
    assert max(map(len, found)) < 2 * CHUNK
    assert len(json.loads(b"".join(found))["rows"]) == 20_000


def test_an_error_before_the_first_row_is_raised() -> None:
    with pytest.raises(NotFound):
        chunks(numbers(0, failing=True))


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (InvalidInput("x"), 400),
        (LoginRequired("x"), 401),
        (Denied("x"), 403),
        (NotFound("x"), 404),
        (WrongState("x"), 409),
        (Unavailable("x"), 503),
        (Untrusted("x"), 502),
        (Corrupt("x"), 502),
    ],
)
def test_errors_have_a_status_and_their_sentence(error: MoonfedError, status: int) -> None:
    response = error_response(error)
    assert (response.status_code, response.body) == (status, b'{"error":"x"}')


@pytest.mark.parametrize(
    ("read", "value", "problem"),
    [
        (text, 1, "x is 1; it must be a string"),
        (text, None, "x is None; it must be a string"),
        (number, "1", "x is '1'; it must be a number"),
        (number, True, "x is True; it must be a number"),
        (whole, 1.5, "x is 1.5; it must be a whole number from 0"),
        (whole, -1, "x is -1; it must be a whole number from 0"),
        (whole, True, "x is True; it must be a whole number from 0"),
    ],
)
def test_fields_of_another_type_are_rejected(read: Any, value: object, problem: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read({"x": value}, "x")
    assert str(caught.value) == problem
    assert (text({"x": "a"}, "x"), number({"x": 1.5}, "x"), whole({"x": 3}, "x")) == ("a", 1.5, 3)
