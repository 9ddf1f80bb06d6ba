"""Tables and figures as data: cells, each a simulation with the paper's number next to it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

Measure = Literal["accuracy", "rounds", "speed-up", "seconds", "ratio", "spread", "test samples"]
Chart = Literal["comparison", "bars", "curves", "lines", "heat-map", "t-sne"]
Value = float | str | bool
_NUMBER = re.compile(r"(?P<value>\d[\d,.]*)(?: ± (?P<deviation>[\d.,]+))?(?:x|(?P<minutes> min))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperValue:
    """A number as a paper prints it; `value` is None where it prints none, as in `<1x`. Minutes become seconds."""

    text: str
    value: float | None = None
    deviation: float | None = None

    @classmethod
    def read(cls, text: str) -> PaperValue | None:
        """Read `69.1 ± 0.4`, `5,000`, `20 min`, `1.8x`, `<1x` or `>100`; nothing for an empty text."""
        if not text:
            return None
        found = _NUMBER.fullmatch(text)
        if not found:
            return cls(text=text)
        value = float(found["value"].replace(",", "")) * (60 if found["minutes"] else 1)
        deviation = found["deviation"]
        return cls(text=text, value=value, deviation=float(deviation.replace(",", "")) if deviation else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A method with settings, under the paper's name for it.

    `best`: the value of mu by data set. `grid`: the values over which the paper tuned the setting `tuned` for this row;
    empty if it did not. `printed`: whether the paper prints which value was best, here or in another table; if not, the
    one here is our choice. `keys` are `Simulation`'s own keys, `settings` and `server` its tables.
    """

    label: str
    method: str
    settings: Mapping[str, float] = field(default_factory=dict)
    server: Mapping[str, Value] = field(default_factory=dict)
    keys: Mapping[str, Value] = field(default_factory=dict)
    tuned: str = "mu"
    best: Mapping[str, float] = field(default_factory=dict)
    grid: tuple[float, ...] = ()
    printed: bool = True
    quick: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A data set under conditions that hold for all methods; `at`: the share of rounds after which it is read."""

    dataset: str
    label: str = ""  # empty: the data set's title
    settings: Mapping[str, float] = field(default_factory=dict)
    keys: Mapping[str, Value] = field(default_factory=dict)
    at: float = 1.0
    quick: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class QuickSize:
    """The small experiment that `--quick` runs instead of the paper's.

    `beta`: 0 for the paper's. `settings`: by method, in place of those that the paper tuned for its own experiment.
    `note`: a remark on the result.
    """

    rounds: int = 5
    epochs: int = 5
    parties: int = 4
    beta: float = 0.0
    settings: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One number of a table, or one curve of a figure. `quick`: whether `--quick` runs it too."""

    row: str
    column: str
    dataset: str
    method: str
    settings: Mapping[str, float]
    server: Mapping[str, Value]
    keys: Mapping[str, Value]
    tuned: str
    grid: tuple[float, ...]
    printed: bool
    at: float
    quick: bool
    paper: PaperValue | None
    size: QuickSize = field(default_factory=QuickSize)

    def reading_round(self, rounds: int) -> int:
        """Return the round, out of `rounds`, whose model gives the cell's number."""
        return max(1, round(self.at * rounds))


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """The cells of one table, and of one part of the figure.

    `target`: for `rounds` and `speed-up`, an accuracy or the row whose last accuracy is to be reached; for `ratio`, the
    row that the others are divided by. `x`: the meaning of the columns in a chart of `lines`.
    """

    title: str
    cells: tuple[Cell, ...]
    measure: Measure = "accuracy"
    target: float | str = ""
    chart: Chart = "comparison"
    x: str = ""

    @property
    def trains(self) -> bool:
        """True if the cells are simulations; the others describe data sets and splits."""
        return self.measure not in ("spread", "test samples")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """A table or a figure of a paper.

    `unstated`: the conditions that the paper does not state, each with the source of ours. `size`: of a quick run.
    """

    name: str
    title: str
    source: str
    panels: tuple[Panel, ...]
    notes: tuple[str, ...] = ()
    unstated: Mapping[str, str] = field(default_factory=dict)
    size: QuickSize = field(default_factory=QuickSize)

    @property
    def cells(self) -> Iterator[Cell]:
        """All cells, panel by panel."""
        return (cell for panel in self.panels for cell in panel.cells)

    @property
    def trained(self) -> list[Cell]:
        """The cells that are simulations."""
        return [cell for panel in self.panels if panel.trains for cell in panel.cells]

    @property
    def datasets(self) -> tuple[str, ...]:
        """The data sets, in the paper's order."""
        return tuple(dict.fromkeys(cell.dataset for cell in self.cells))

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods, in the paper's order."""
        return tuple(dict.fromkeys(cell.method for cell in self.cells))


def cross(columns: Sequence[Column], rows: Sequence[tuple[Row, str]]) -> tuple[Cell, ...]:
    """Make a cell for each row and column.

    A row comes with the paper's numbers, one for each column, separated by `|`; `-` where the paper has no such cell.
    The text is empty if the paper prints no numbers, as in most figures.
    """
    return tuple(
        _cell(row, column, text.strip())
        for row, texts in rows
        for column, text in zip(columns, texts.split("|") if texts else [""] * len(columns), strict=True)
        if text.strip() != "-"
    )


def _cell(row: Row, column: Column, text: str) -> Cell:
    best = {"mu": row.best[column.dataset]} if column.dataset in row.best else {}
    return Cell(
        row=row.label,
        column=column.label,
        dataset=column.dataset,
        method=row.method,
        settings={**best, **row.settings, **column.settings},
        server=row.server,
        keys={**column.keys, **row.keys},
        tuned=row.tuned,
        grid=row.grid,
        printed=row.printed,
        at=column.at,
        quick=row.quick and column.quick,
        paper=PaperValue.read(text),
    )
