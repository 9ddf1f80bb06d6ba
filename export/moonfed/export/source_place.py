"""The place in a source file that torch names in its errors, and in the ranges of a graph's nodes."""

from __future__ import annotations

import re

_PLACE = re.compile(r'File "(.+)", line (\d+)')


def source_place(*texts: str) -> str:
    """Return the first place that any of the texts names, as `FILE, line N`; "" if none does."""
    found = next((match for text in texts if (match := _PLACE.search(text))), None)
    return f"{found[1]}, line {found[2]}" if found else ""
