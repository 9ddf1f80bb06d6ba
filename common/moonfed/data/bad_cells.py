"""Cells of a table that cannot be used: all are counted, and the first few are reported by row and column."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from moonfed.errors import InvalidInput

SHOWN = 3  # cells
VALUE_LENGTH = 40  # characters of a value
CHOICES = 10  # of the categories that a value may have


class UnusableData(InvalidInput):
    """Data cannot be used. The sentence quotes their content; `public` does not, so it may leave the device."""

    def __init__(self, sentence: str, public: str) -> None:
        super().__init__(sentence)
        self.public = public


class UnusableTable(UnusableData):
    """A table cannot be used."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell with its problem; `problem` follows the value, if there is one, or stands alone."""

    row: int
    position: int  # of the column
    column: str
    value: str | None  # None: missing
    problem: str

    def describe(self, *, public: bool) -> str:
        """Return the place and the problem, with the value or without it."""
        if self.value is None:
            subject = "the value"
        elif public:
            subject = "a value"
        else:
            subject = repr(self.value if len(self.value) <= VALUE_LENGTH else f"{self.value[:VALUE_LENGTH]}…")
        return f"row {self.row}, column {self.column}: {subject} {self.problem}"


class BadCells:
    """The bad cells of one file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._count = 0
        self._first = list[Cell]()

    def __len__(self) -> int:
        return self._count

    def place(self, column: str) -> str:
        """Return the words for a column of the file."""
        return f"{self._path}, column {column}"

    def add(self, indices: Sequence[int], describe: Callable[[int], Cell]) -> None:
        """Count the cells of a column; `describe` is called for the first few indices."""
        self._count += len(indices)
        found = [*self._first, *map(describe, indices[:SHOWN])]
        self._first = sorted(found, key=lambda cell: (cell.row, cell.position))[:SHOWN]

    def require_none(self) -> None:
        """Raise UnusableTable if there are bad cells."""
        if self._count:
            raise UnusableTable(self._sentence(public=False), self._sentence(public=True))

    def _sentence(self, *, public: bool) -> str:
        shown = [cell.describe(public=public) for cell in self._first]
        if self._count == 1:
            return f"{self._path}, {shown[0]}"
        more = self._count - len(shown)
        rest = f"; and {more:,} more" if more else ""
        return f"{self._path} has {self._count:,} cells that cannot be used: {'; '.join(shown)}{rest}"


def one_of(names: Sequence[str]) -> str:
    """Return "is not one of …" with the first few names."""
    more = f", … ({len(names)} in all)" if len(names) > CHOICES else ""
    return f"is not one of {', '.join(names[:CHOICES])}{more}"
