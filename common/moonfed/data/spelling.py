"""Spellings of a name, of a class, a category or a column, that people take for the same name."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", re.ASCII)
_VALUE = re.compile(r"(-?)\+?(?:0|([1-9][0-9]*))?(?:\.([0-9]*))?(?:[eE]([+-]?[0-9]{1,9}))?", re.ASCII)


def composed(name: str) -> str:
    """Return a name in the form in which equal names are equal; macOS decomposes accents."""
    return unicodedata.normalize("NFC", name)


def canonical(name: str) -> str:
    """Return what all spellings of a name have in common.

    Numbers are compared by value, unless they begin with a zero, as codes do; true and false without case.
    """
    if name.lower() in ("true", "false"):
        return name.lower()
    found = _VALUE.fullmatch(name) if NUMBER.fullmatch(name) else None
    if found is None:
        return composed(name)
    sign, whole, fraction, exponent = (group or "" for group in found.groups())
    digits = (whole + fraction).lstrip("0")
    significant = digits.rstrip("0")
    power = int(exponent or 0) - len(fraction) + len(digits) - len(significant)
    return f"{sign}{significant}e{power}" if significant else "0e0"


class Names:
    """A list of names in which others are looked up: exactly, or in another spelling if it is that of one name only."""

    def __init__(self, names: Sequence[str]) -> None:
        exact, spelt = {name: position for position, name in enumerate(names)}, dict[str, int]()
        for position, name in enumerate(names):
            key = canonical(name)
            spelt[key] = -1 if key in spelt else position
        self._exact, self._spelt = exact, spelt

    def find(self, name: str) -> int | None:
        """Return a name's position; None if it is none of them."""
        if name in self._exact:
            return self._exact[name]
        found = self._spelt.get(canonical(name), -1)
        return None if found < 0 else found
