"""Checks of settings; each raises InvalidInput naming the setting, its value and what is allowed."""

from __future__ import annotations

import math

from moonfed.errors import InvalidInput


def require_positive(name: str, value: float) -> None:
    """The value must be a finite number above 0."""
    if not (math.isfinite(value) and value > 0):
        raise InvalidInput(f"{name} is {value!r}; it must be a number above 0")


def require_at_least(name: str, value: float, least: float, *, below: float = math.inf) -> None:
    """The value must be a finite number from `least`, and below the limit if there is one."""
    if not (math.isfinite(value) and least <= value < below):
        limit = "" if math.isinf(below) else f" and below {below:g}"
        raise InvalidInput(f"{name} is {value!r}; it must be a number from {least:g}{limit}")


def require_whole(name: str, value: int, least: int, most: int | None = None) -> None:
    """The value must be a whole number from `least`, and up to `most` if there is a limit."""
    if not (isinstance(value, int) and least <= value and (most is None or value <= most)):
        limit = "" if most is None else f" to {most}"
        raise InvalidInput(f"{name} is {value!r}; it must be a whole number from {least}{limit}")
