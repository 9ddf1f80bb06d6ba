"""Inference of a table's description from an example: kinds of columns, categories, classes and scales.

A column is numeric if most of its cells are numbers; its other cells are then reported as errors. A column of other
text is categorical.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from moonfed.data.bad_cells import UnusableTable
from moonfed.data.formats import TABLES, kind_of
from moonfed.data.source import report
from moonfed.data.table import TableRows, require_columns
from moonfed.data.table_cells import as_text, count_values, parse_numbers
from moonfed.data.table_reader import Batch, read_batches, read_header
from moonfed.errors import InvalidInput
from moonfed.export.table_description import Scale, TableDescription
from moonfed.files import require_file
from moonfed.table_spec import Column, TableSpec

MAX_CATEGORIES = 256  # of a column; each becomes a feature
MAX_CLASSES = 1000
DIGITS = 6  # significant ones, of means and deviations


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnChoices:
    """A user's choices about columns."""

    target: str
    ignored: Sequence[str] = ()
    categorical: Sequence[str] = ()  # although they hold numbers


def infer_description(path: Path, choices: ColumnChoices) -> TableDescription:
    """Describe a table by its content.

    Raises InvalidInput for a column that cannot be used, and UnusableTable for bad cells, by row and column.
    """
    require_file("data", path)
    if kind_of(str(path)) not in TABLES:
        raise InvalidInput(f"data is {str(path)!r}; it must be a .csv or .parquet file")
    header = read_header(path)
    if not choices.target:
        raise InvalidInput(f"target is missing; it must be one of the columns, {', '.join(header)}")
    require_columns(path, header, [choices.target, *choices.ignored, *choices.categorical])
    features = [name for name in header if name not in (choices.target, *choices.ignored)]
    _require_named(path, features)
    seen = _look_at(path, features, choices)
    if not any(column.numbers or column.texts for column in seen.values()):
        raise InvalidInput(f"{path} has no rows; at least one is needed")
    table = TableSpec(
        columns=tuple(_column(path, name, seen[name]) for name in features),
        target=choices.target,
    )
    classes = _classes(path, choices.target, seen[choices.target])
    if len(classes) < 2:
        found = ", ".join(map(repr, classes)) or "no value"
        raise InvalidInput(f"target is {choices.target!r}, which has only {found}; it must have at least two classes")
    return TableDescription(table=table, classes=classes, scales=_scales(path, table, classes))


@dataclass(slots=True)
class _Seen:
    """The cells of a column so far."""

    limit: int  # of distinct texts
    categorical: bool
    numbers: int = 0
    texts: int = 0
    distinct: set[str] = field(default_factory=set)

    def add(self, batch: Batch, name: str, place: str) -> None:
        """Count the cells of a batch."""
        cells = batch.columns[name]
        found = 0 if self.categorical else int(np.isfinite(parse_numbers(cells, place)).sum())
        self.numbers += found
        if found < len(batch):
            self.texts += count_values(cells, place, categorical=self.categorical) - found
        if len(self.distinct) <= self.limit:
            self.distinct.update(text for text in as_text(cells, place).unique().to_pylist() if text)

    @property
    def numeric(self) -> bool:
        """True if most of the cells are numbers."""
        return not self.categorical and self.numbers > self.texts


def _look_at(path: Path, features: Sequence[str], choices: ColumnChoices) -> dict[str, _Seen]:
    seen = {name: _Seen(MAX_CATEGORIES, name in choices.categorical) for name in features}
    seen[choices.target] = _Seen(MAX_CLASSES, categorical=True)
    notes = list[str]()
    for batch in read_batches(path, list(seen), notes):
        for name, found in seen.items():
            found.add(batch, name, f"{path}, column {name}")
    report(notes)
    return seen


def _column(path: Path, name: str, seen: _Seen) -> Column:
    if seen.numeric:
        return Column(name=name)
    if len(seen.distinct) > MAX_CATEGORIES:
        advice = "it must be numeric, or name categories, or be left out with --ignore"
        raise _too_many(path, name, seen, MAX_CATEGORIES, advice)
    categories = _names(seen)
    if not categories:
        raise InvalidInput(f"{path}, column {name} is empty; leave it out with --ignore")
    return Column(name=name, categories=categories)


def _classes(path: Path, target: str, seen: _Seen) -> tuple[str, ...]:
    if len(seen.distinct) > MAX_CLASSES:
        raise _too_many(path, target, seen, MAX_CLASSES, f"a target must name at most {MAX_CLASSES} classes")
    return _names(seen)


def _too_many(path: Path, column: str, seen: _Seen, limit: int, advice: str) -> UnusableTable:
    fault = f"{path}, column {column} has more than {limit} different values"
    return UnusableTable(f"{fault}, such as {min(seen.distinct)!r}; {advice}", fault)


def _names(seen: _Seen) -> tuple[str, ...]:
    return tuple(sorted(seen.distinct, key=_order))


def _order(name: str) -> tuple[int, int, str]:
    """Sort whole numbers by value, before other names."""
    return (0, int(name), name) if name.isascii() and name.isdecimal() else (1, 0, name)


def _scales(path: Path, table: TableSpec, classes: Sequence[str]) -> dict[str, Scale]:
    """Return the scales of numeric columns, of all rows; every cell is checked."""
    count, mean = 0, np.zeros(table.width)
    squares: npt.NDArray[np.float64] = np.zeros(table.width)  # sum of squared differences from the mean
    for rows in TableRows(path, table, table.target, classes).read():
        features = rows.features.astype(np.float64)
        difference = features.mean(axis=0) - mean
        total = count + len(features)
        squares += ((features - features.mean(axis=0)) ** 2).sum(axis=0)
        squares += difference**2 * count * len(features) / total
        mean, count = mean + difference * len(features) / total, total
    deviation = np.sqrt(squares / count)
    starts = np.cumsum([0, *(column.width for column in table.columns)]).tolist()
    return {
        column.name: Scale(_rounded(mean[start]), _rounded(deviation[start]) or 1.0)  # a column that never changes
        for column, start in zip(table.columns, starts, strict=False)
        if not column.categories
    }


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def _require_named(path: Path, names: Sequence[str]) -> None:
    if not names:
        raise InvalidInput(f"{path} has no column besides the target; at least one is needed")
    if not all(names):
        raise InvalidInput(f"{path} has a column without a name; name it in the header, or remove it")
