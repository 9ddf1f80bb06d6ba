"""Cells of one column of a batch as numbers or as positions in a list of names.

A number is written with digits, an optional point, sign and exponent. White space around a cell does not count. In
Parquet files, numeric columns may have any numeric type, and columns of names may be text, whole numbers or booleans.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from moonfed.bundle.target import UNKNOWN
from moonfed.data.bad_cells import BadCells, Cell, one_of
from moonfed.data.spelling import NUMBER, Names, canonical
from moonfed.data.table_reader import Batch, Cells
from moonfed.errors import InvalidInput

MISSING = ("", "na", "n/a", "#n/a", "nan", "null", "none", "?")  # in numeric columns, in lower case
_FLAGS = ({canonical("0"), "false"}, {canonical("1"), "true"})
_IS_MISSING = "is missing"

Numbers = npt.NDArray[np.float64]
Flags = npt.NDArray[np.uint8]
Positions = npt.NDArray[np.int64]


def read_numbers(batch: Batch, name: str, position: int, bad: BadCells) -> Numbers:
    """Return a column's numbers; other cells are added to `bad`, and are 0 in the result."""
    numbers = parse_numbers(batch.columns[name], bad.place(name))
    with np.errstate(over="ignore"):  # becomes infinite
        usable = np.isfinite(numbers.astype(np.float32))
    if not usable.all():
        bad.add(np.flatnonzero(~usable).tolist(), _describe(batch, name, position, _number_problem, bad))
    return np.where(usable, numbers, 0.0)


def parse_numbers(cells: Cells, place: str) -> Numbers:
    """Return the numbers; NaN for cells that are not numbers. InvalidInput for a column of another type."""
    import pyarrow as pa
    import pyarrow.compute as pc

    cells = _decoded(cells)
    if _is_text(cells.type):
        try:
            parsed = pc.cast(pc.utf8_trim_whitespace(cells), pa.float64())
        except pa.ArrowInvalid:  # one of them is not a number: parse each for itself
            return np.array([_parse(text) for text in cells.to_pylist()], np.float64)
    elif pa.types.is_boolean(cells.type):
        parsed = pc.cast(pc.cast(cells, pa.int8()), pa.float64())
    elif _is_number(cells.type):
        parsed = pc.cast(cells, pa.float64(), safe=False)
    else:
        raise InvalidInput(f"{place} has type {cells.type}; it must be numbers or text")
    numbers: Numbers = np.asarray(parsed.to_numpy(zero_copy_only=False), np.float64)
    return numbers


def read_flags(batch: Batch, name: str, position: int, bad: BadCells) -> Flags:
    """Return 0 or 1 for each cell, UNKNOWN for a missing one; other cells are added to `bad`."""
    import pyarrow as pa
    import pyarrow.compute as pc

    text = as_text(batch.columns[name], bad.place(name))
    spellings = pc.unique(text)
    flags = pa.array([_flag(value) for value in spellings.to_pylist()], pa.int64())
    found = flags.take(pc.index_in(text, spellings))
    indices = np.flatnonzero(np.asarray(found.is_null()))
    if len(indices):
        bad.add(indices.tolist(), _describe(batch, name, position, lambda _: "is not 0, 1 or empty", bad))
    return np.asarray(found.fill_null(0).to_numpy(zero_copy_only=False), np.uint8)


def _flag(text: str | None) -> int | None:
    """Return a cell's flag; None if it is none."""
    if is_missing(text):
        return UNKNOWN
    known = canonical(text or "")
    return next((flag for flag, names in enumerate(_FLAGS) if known in names), None)


def read_positions(batch: Batch, name: str, position: int, names: Sequence[str], bad: BadCells) -> Positions:
    """Return each cell's position among the names; other cells are added to `bad`, and are 0 in the result."""
    import pyarrow as pa
    import pyarrow.compute as pc

    text = as_text(batch.columns[name], bad.place(name))
    spellings, known = pc.unique(text), Names(names)
    meant = pa.array([None if value is None else known.find(value) for value in spellings.to_pylist()], pa.int64())
    found = meant.take(pc.index_in(text, spellings))
    indices = np.flatnonzero(np.asarray(found.is_null()))
    if len(indices):
        choices = one_of(names)
        bad.add(indices.tolist(), _describe(batch, name, position, lambda value: choices if value else "", bad))
    positions: Positions = found.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    return positions


def as_text(cells: Cells, place: str) -> Cells:
    """Return cells as text without white space around it; InvalidInput for a column of another type."""
    import pyarrow as pa
    import pyarrow.compute as pc

    cells = _decoded(cells)
    if not (_is_text(cells.type) or pa.types.is_boolean(cells.type) or _is_number(cells.type)):
        raise InvalidInput(f"{place} has type {cells.type}; it must be text, numbers or booleans")
    return pc.utf8_trim_whitespace(pc.cast(cells, pa.string()))


def count_values(cells: Cells, place: str, *, categorical: bool) -> int:
    """Count the cells of a column that have a value."""
    import pyarrow as pa
    import pyarrow.compute as pc

    missing = pa.array(("",) if categorical else MISSING, pa.string())
    found = pc.is_in(pc.utf8_lower(as_text(cells, place)), value_set=missing)
    return len(cells) - int(pc.sum(found).as_py() or 0) - int(cells.null_count)


def is_missing(text: str | None) -> bool:
    """Return whether a cell of a numeric column has no value."""
    return text is None or text.strip().lower() in MISSING


def _describe(
    batch: Batch, name: str, position: int, problem: Callable[[str | None], str], bad: BadCells
) -> Callable[[int], Cell]:
    """Return the function that describes the cell at an index; `problem` of its text is empty if it is missing."""
    text = as_text(batch.columns[name], bad.place(name))

    def describe(index: int) -> Cell:
        value = text[index].as_py()
        found = problem(value)
        return Cell(int(batch.rows[index]), position, name, value if found else None, found or _IS_MISSING)

    return describe


def _number_problem(value: str | None) -> str:
    if value is None or is_missing(value):
        return ""
    return "is too large" if NUMBER.fullmatch(value) or "inf" in value.lower() else "is not a number"


def _parse(text: str | None) -> float:
    return float(text) if text is not None and NUMBER.fullmatch(text := text.strip()) else np.nan


def _decoded(cells: Cells) -> Cells:
    """Return the values of a dictionary-encoded column, as pandas writes categories."""
    import pyarrow as pa

    return cells.dictionary_decode() if pa.types.is_dictionary(cells.type) else cells


def _is_text(kind: object) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_number(kind: object) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))
