"""Doubts about the columns of an example: numbers and dates as categories, row numbers, codes for missing values.

Some need a word of the user before the table is described; others are reported.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from moonfed.data.spelling import NUMBER, canonical

FEW_ROWS = 10  # with fewer, it means nothing that values differ
NEARLY_ALL, MOST = 0.9, 0.5  # of the rows
LEVELS = 64  # that 32 bits must tell apart between a column's least and greatest number
MANY_NUMBERS = 20  # a target with more different numbers does not name classes
ROW_NUMBER_NAMES = ("unnamed: 0", "__index_level_0__", "index", "level_0")  # of pandas, in lower case
SEPARATORS = ",;|+&/"  # of several names in a cell
# A list of quoted names, or of three items and more: [0, 1] is a range.
LIST = re.compile(r"""[\[{]\s*(['"].*,.*|[^,]*,[^,]*,.*)[\]}]""", re.DOTALL)
MISSING_CODES = re.compile(r"-1|[+-]?99+|-32768|-2147483648|2147483647", re.ASCII)


@dataclass(slots=True)
class NumbersSeen:
    """The numbers of a column so far."""

    count: int = 0
    whole: bool = True
    consecutive: bool = True  # each is one more than the one before
    last: float = 0.0
    ends: dict[float, int] = field(default_factory=dict)  # the two least and two greatest, and how often each occurs
    different: list[npt.NDArray[np.float64]] | None = field(default_factory=list)  # all; None if some are equal

    def add(self, numbers: npt.NDArray[np.float64]) -> None:
        """Count numbers; others are NaN."""
        numbers = numbers[np.isfinite(numbers)]
        if not len(numbers):
            return
        self.whole = self.whole and bool((numbers == np.floor(numbers)).all())
        steps = np.diff(numbers, prepend=[self.last] if self.count else [])
        self.consecutive = self.consecutive and bool((steps == 1).all())
        found, counts = np.unique(numbers, return_counts=True)
        if self.different is not None:
            self.different = [*self.different, found] if len(found) == len(numbers) else None
        for position in {0, 1, len(found) - 2, len(found) - 1} & set(range(len(found))):
            value = float(found[position])
            self.ends[value] = self.ends.get(value, 0) + int(counts[position])
        ordered = sorted(self.ends)
        self.ends = {value: self.ends[value] for value in {*ordered[:2], *ordered[-2:]}}
        self.count, self.last = self.count + len(numbers), float(numbers[-1])

    def all_differ(self) -> bool:
        """Return whether no number occurs twice."""
        return self.different is not None and len(np.unique(np.concatenate([[], *self.different]))) == self.count

    def too_fine(self) -> bool:
        """Return whether numbers of 32 bits cannot hold the differences."""
        least, greatest = min(self.ends, default=0.0), max(self.ends, default=0.0)
        largest = min(max(-least, greatest), float(np.finfo(np.float32).max))
        return 0 < greatest - least < LEVELS * float(np.spacing(np.float32(largest)))

    def missing_code(self) -> str:
        """Return a repeated number that looks like a code and lies apart from all others; empty if there is none."""
        ordered = sorted(self.ends)
        if len(ordered) < 3:
            return ""
        below = ordered[0], ordered[1] - ordered[0], ordered[-1] - ordered[1]
        above = ordered[-1], ordered[-1] - ordered[-2], ordered[-2] - ordered[0]
        for value, gap, span in (below, above):
            apart = gap > span or (value == -1 and ordered[1] >= 0)
            if apart and self.ends[value] > 1 and MISSING_CODES.fullmatch(f"{value:.15g}"):
                return f"{value:.15g}"
        return ""


def numeric_question(name: str, seen: NumbersSeen) -> str:
    """Return why a numeric column may be no feature, as the end of a sentence; empty unless the user has to say so."""
    if name.lower() in ROW_NUMBER_NAMES or (seen.consecutive and seen.count >= FEW_ROWS):
        return "numbers the rows"
    if seen.too_fine():
        return "holds large numbers whose differences are lost in 32 bits; subtract the least of them first"
    return ""


def numeric_notes(seen: NumbersSeen) -> list[str]:
    """Return what a user should look at in a numeric column, as ends of sentences."""
    notes = []
    if seen.whole and seen.count >= FEW_ROWS and not seen.consecutive and seen.all_differ():
        notes.append("holds another whole number in every row, as identifiers and times do")
    if code := seen.missing_code():
        notes.append(f"holds {code} apart from all other numbers, which may stand for missing values")
    return notes


def text_question(different: int, rows: int) -> str:
    """Return why a column of text may name no categories; empty unless the user has to say so."""
    return f"has {different} different values in {rows} rows" if _most(different, rows, NEARLY_ALL) else ""


def text_notes(names: tuple[str, ...], rows: int) -> list[str]:
    """Return what a user should look at in a column of categories."""
    if _most(len(names), rows, MOST):
        return [f"becomes {len(names)} categories of {rows} rows"]
    digits = [name for name in names if any(character.isdigit() for character in name)]
    return [f"becomes {len(names)} categories with digits, such as {digits[0]!r}"] if digits else []


def target_question(different: set[str], rows: int) -> str:
    """Return why a target may name no classes; empty unless the user has to say so."""
    if all(map(NUMBER.fullmatch, different)):
        fractions = [name for name in different if "e-" in canonical(name)]
        if fractions or len(different) > MANY_NUMBERS:
            return f"holds numbers, {len(different)} different ones"
    return f"has {len(different)} different values in {rows} rows" if _most(len(different), rows, MOST) else ""


def several_question(different: set[str]) -> str:
    """Return why a target may name several classes in a cell; empty unless the user has to say so."""
    for name in sorted(different):
        parts = {frozenset(part.strip() for part in name.split(separator)) for separator in SEPARATORS}
        if any(len(each) > 1 and each <= different for each in parts) or LIST.fullmatch(name):
            return f"names several classes in a cell, such as {name!r}"
    return ""


def _most(different: int, rows: int, share: float) -> bool:
    return rows >= FEW_ROWS and different > share * rows
