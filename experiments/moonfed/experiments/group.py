"""Parties from a column of a table, such as the hospital that a row is from, or an array of an .npz file.

Each of its values is one party.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from moonfed.data.bad_cells import BadCells, Cell
from moonfed.data.data_set import Rows
from moonfed.data.formats import NPZ, TABLES, kind_of
from moonfed.data.npz import read_parties
from moonfed.data.table import require_columns
from moonfed.data.table_cells import as_text
from moonfed.data.table_reader import read_batches, read_header
from moonfed.errors import InvalidInput
from moonfed.experiments.partition import Indices


def read_names(path: Path, column: str) -> tuple[str, ...]:
    """Return the values of a column, sorted: the names of the parties."""
    return tuple(sorted({value for _, value in _read_cells(path, column)}))


def group_by(path: Path, column: str, rows: Rows) -> list[Indices]:
    """Return each party's positions in `rows`, which has numbers of rows or positions in arrays, in order of the names.

    Raises InvalidInput for a missing value, and for a party without rows.
    """
    values = dict(_read_cells(path, column))
    bad = BadCells(path)
    missing = [position for position, row in enumerate(rows.tolist()) if row not in values]
    bad.add(missing, lambda position: Cell(int(rows[position]), 0, column, None, "is missing"))
    bad.require_none()
    names = sorted(set(values.values()))
    number = {name: position for position, name in enumerate(names)}
    owners = np.asarray([number[values[row]] for row in rows.tolist()], np.int64)
    parts = [np.flatnonzero(owners == position) for position in range(len(names))]
    for name, part in zip(names, parts, strict=True):
        if not len(part):
            raise InvalidInput(
                f"{path}, column {column}: {name!r} has too few rows for a party of its own", field=column, value=name
            )
    return parts


def _read_cells(path: Path, column: str) -> Iterator[tuple[int, str]]:
    """Yield the numbers of rows with the column's values; rows without a value are left out."""
    if kind_of(str(path)) == NPZ:
        yield from enumerate(map(str, read_parties(path, column)))
        return
    if kind_of(str(path)) not in TABLES:
        raise InvalidInput(
            field="by", value=column, rest=f", which applies to tables and .npz files only; {str(path)!r} is neither"
        )
    require_columns(path, read_header(path), (column,))
    for batch in read_batches(path, (column,), []):
        cells = as_text(batch.columns[column], f"{path}, column {column}").to_pylist()
        yield from ((int(row), value) for row, value in zip(batch.rows, cells, strict=True) if value)
