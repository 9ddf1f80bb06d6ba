"""Validation of settings and messages: every check raises InvalidInput, "NAME is VALUE; it must be …"."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable

from moonfed.errors import InvalidInput

# Of runs, devices, releases and the like, which may become parts of file names. Each kind may have a stricter rule.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
NAME_RULE = "1 to 128 letters, digits, '.', '_' or '-', the first a letter or digit"


def require(valid: bool, name: str, value: object, allowed: str) -> None:
    """Raise InvalidInput unless `valid`; `allowed` completes "it must be"."""
    if not valid:
        raise InvalidInput(field=name, value=value, allowed=allowed)


def require_whole(name: str, value: object, least: int, most: int | None = None) -> None:
    """Require an int (not a bool) from `least`, up to `most` if given."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    valid = whole and least <= value and (most is None or value <= most)  # type: ignore[operator]
    require(valid, name, value, f"a whole number from {least}{'' if most is None else f' to {most}'}")


def require_positive(name: str, value: float) -> None:
    """Require a finite number above 0."""
    require(math.isfinite(value) and value > 0, name, value, "a number above 0")


def require_at_least(name: str, value: float, least: float, *, below: float = math.inf) -> None:
    """Require a finite number from `least`, below the limit if there is one."""
    limit = "" if math.isinf(below) else f" and below {below:g}"
    valid = math.isfinite(value) and least <= value < below
    require(valid, name, value, f"a number from {least:g}{limit}")


def require_finite(name: str, value: float) -> None:
    """Require a finite number."""
    require(math.isfinite(value), name, value, "a finite number")


def require_one_of(name: str, value: object, allowed: Iterable[object]) -> None:
    """Require one of a few values."""
    choices = list(allowed)
    require(value in choices, name, value, f"one of {', '.join(map(str, choices))}")


def require_port(name: str, value: int) -> None:
    """Require a TCP port to listen on, 0 for any free one."""
    require(0 <= value < 65536, name, value, "a port from 1 to 65535, or 0 for any free one")


def require_line(name: str, value: str) -> None:
    """Require text of one line without control characters, which could forge lines in a log or move a cursor."""
    bad = any(unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp") for character in value)
    require(not bad, name, value, "one line without control characters")
