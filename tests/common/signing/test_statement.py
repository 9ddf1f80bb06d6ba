from __future__ import annotations

import json
from typing import Any

import pytest

from moonfed.errors import InvalidInput
from moonfed.signing.statement import Statement

STATEMENT = Statement(name="digits", version=3, manifest="0f" * 32, expires=2_000_000_000)


def test_a_statement_is_read_as_it_was_written() -> None:
    document = {"name": "digits", "version": 3, "manifest": "0f" * 32, "expires": 2_000_000_000}
    assert json.loads(STATEMENT.to_bytes()) == document
    assert Statement.from_bytes(STATEMENT.to_bytes()) == STATEMENT


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"name": ""}, "name has 0 characters; it must have 1 to 255"),
        ({"name": "x" * 256}, "name has 256 characters"),
        ({"name": "two\nlines"}, "one line without control characters"),
        ({"version": 0}, "version is 0; it must be a whole number from 1"),
        ({"version": 1 << 53}, "version is 9007199254740992"),
        ({"version": True}, "'version' of the wrong type"),
        ({"manifest": "0F" * 32}, "a sha256 in hexadecimal"),
        ({"manifest": "0f" * 32 + "\n"}, "a sha256 in hexadecimal"),
        ({"expires": -1}, "expires is -1"),
        ({"expires": 1.5}, "'expires' of the wrong type"),
        ({"more": 1}, "exactly the fields"),
    ],
)
def test_a_malformed_statement_is_rejected(changed: dict[str, Any], problem: str) -> None:
    document = json.loads(STATEMENT.to_bytes()) | changed
    content = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    with pytest.raises(InvalidInput, match=problem):
        Statement.from_bytes(content)
