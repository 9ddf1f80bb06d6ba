"""Messages between a process and its child: one JSON object per line, with a kind."""

from __future__ import annotations

import json
from typing import Any


def encode(kind: str, **fields: object) -> bytes:
    """Return a message as one line."""
    return json.dumps({"kind": kind, **fields}).encode() + b"\n"


def decode(line: bytes) -> tuple[str, dict[str, Any]]:
    """Return a line's kind and fields."""
    fields = json.loads(line)
    return fields.pop("kind"), fields
