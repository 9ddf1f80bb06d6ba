from __future__ import annotations

import json
from typing import Any
from unittest.mock import ANY

import pytest

from moonfed.errors import InvalidInput
from moonfed.signing.statement import Statement
from tests.support.refusals import refused

STATEMENT = Statement(name="digits", version=3, manifest="0f" * 32, expires=2_000_000_000)


def test_a_statement_is_read_as_it_was_written() -> None:
    document = {"name": "digits", "version": 3, "manifest": "0f" * 32, "expires": 2_000_000_000}
    assert json.loads(STATEMENT.to_bytes()) == document
    assert Statement.from_bytes(STATEMENT.to_bytes()) == STATEMENT


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"name": ""}, ("length of name", 0)),
        ({"name": "x" * 256}, ("length of name", 256)),
        ({"name": "two\nlines"}, ("name", ANY)),
        ({"version": 0}, ("version", 0)),
        ({"version": 1 << 53}, ("version", 9007199254740992)),
        ({"version": True}, ("version", ANY)),
        ({"manifest": "0F" * 32}, ("manifest", ANY)),
        ({"manifest": "0f" * 32 + "\n"}, ("manifest", ANY)),
        ({"expires": -1}, ("expires", -1)),
        ({"expires": 1.5}, ("expires", ANY)),
        ({"more": 1}, ("fields of the signed statement", ANY)),
    ],
)
def test_a_malformed_statement_is_rejected(changed: dict[str, Any], named: tuple[str, object]) -> None:
    document = json.loads(STATEMENT.to_bytes()) | changed
    content = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    with refused(InvalidInput, *named):
        Statement.from_bytes(content)
