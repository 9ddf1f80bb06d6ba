from __future__ import annotations

import pytest

from moonfed.errors import InvalidInput
from moonfed.signing import canonical
from tests.support.refusals import refused


@pytest.mark.parametrize(
    "content",
    [
        b'{"a": 1}',
        b'{"b":1,"a":2}',
        b'{"a":1,"a":1}',
        b'{"a":1}\n',
        b'{"a":1.0e1}',
        b'{"a":NaN}',
        b'{"a":1e999}',
        b'{"a":"\\ud800"}',
        b'{"a":"\\u0041"}',
        '{"a":1}'.encode("utf-16"),
        b"\xff",
        b"[" * 60_000,
        b"9" * 10_000,
        b"",
    ],
)
def test_a_document_with_another_spelling_is_rejected(content: bytes) -> None:
    with pytest.raises(InvalidInput, match=r"tested is (not JSON|not in canonical form)"):
        canonical.decode(content, "tested")


def test_a_canonical_document_is_read() -> None:
    assert canonical.decode('{"a":[1,"é"],"b":null}'.encode(), "tested") == {"a": [1, "é"], "b": None}


def test_a_document_that_is_too_large_is_not_parsed() -> None:
    with refused(InvalidInput, "size of tested", 65537):
        canonical.decode(b"1" * 65537, "tested")


def test_fields_must_be_exactly_those_expected() -> None:
    others: list[object] = [{}, {"a": 1, "b": 2}, [], 1, None]
    for document in others:
        with refused(InvalidInput, "fields of tested"):
            canonical.fields(document, "tested", {"a": int})
    for value in ("1", True, 1.0, None):
        with refused(InvalidInput, "a"):
            canonical.fields({"a": value}, "tested", {"a": int})


@pytest.mark.parametrize("text", ["QUI", "QUI=\n", "QUJ=", "Q U I", "QUI=QUI=", "é", 7, None])
def test_base64_has_one_spelling(text: object) -> None:
    with pytest.raises(InvalidInput, match="tested is not base64"):
        canonical.decode_bytes(text, "tested")
    assert canonical.decode_bytes("QUI=", "tested") == b"AB"
