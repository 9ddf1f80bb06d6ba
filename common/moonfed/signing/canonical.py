"""Canonical JSON: a document has only one encoding, so nothing can be added, repeated or hidden in it."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any

from moonfed.errors import InvalidInput

MAX_BYTES = 1 << 16  # of one document


def encode(document: object) -> bytes:
    """Return the canonical form: sorted keys, no white space, UTF-8."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def decode(content: bytes, subject: str, max_bytes: int = MAX_BYTES) -> Any:  # noqa: ANN401
    """Read a canonical document; InvalidInput names the subject."""
    if len(content) > max_bytes:
        raise InvalidInput(
            f"{subject} has {len(content)} bytes; it must be at most {max_bytes}",
            field=f"size of {subject}",
            value=len(content),
        )
    try:
        document = json.loads(content)
        canonical = encode(document)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{subject} is not JSON") from error
    if canonical != content:
        raise InvalidInput(f"{subject} is not in canonical form")
    return document


def fields(document: object, subject: str, types: Mapping[str, type]) -> dict[str, Any]:
    """Return a document's fields, which must be exactly these, each of exactly its type."""
    if not isinstance(document, dict) or set(document) != set(types):
        raise InvalidInput(
            f"{subject} must have exactly the fields {', '.join(sorted(types))}", field=f"fields of {subject}"
        )
    for name, kind in types.items():
        if type(document[name]) is not kind:
            raise InvalidInput(
                f"{subject} has a field {name!r} of the wrong type; it must be {kind.__name__}", field=name
            )
    return document


def items(document: object, subject: str, most: int) -> list[Any]:
    """Return a list of 1 to `most` elements."""
    if not isinstance(document, list) or not 1 <= len(document) <= most:
        raise InvalidInput(f"{subject} must be a list of 1 to {most}", field=subject)
    return document


def encode_bytes(content: bytes) -> str:
    """Return bytes as base64."""
    return base64.b64encode(content).decode()


def decode_bytes(text: object, subject: str) -> bytes:
    """Read what `encode_bytes` wrote."""
    if isinstance(text, str):
        try:
            content = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError) as error:
            raise InvalidInput(f"{subject} is not base64") from error
        if encode_bytes(content) == text:
            return content
    raise InvalidInput(f"{subject} is not base64")
