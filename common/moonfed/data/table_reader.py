"""CSV and Parquet files, read in batches of rows with pyarrow, which is imported only here and when it is needed.

Every cell of a CSV file is read as text. Rows are counted as in a spreadsheet: a CSV file's header is row 1, and the
first row of a Parquet file, which has no header, is row 1, too.
"""

from __future__ import annotations

import csv
import importlib.util
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import numpy.typing as npt

from moonfed.command_line.programs import pip_install
from moonfed.data.bad_cells import UnusableTable
from moonfed.data.csv_lines import count_rows
from moonfed.data.formats import CSV, kind_of
from moonfed.data.spelling import composed
from moonfed.errors import InvalidInput
from moonfed.sizes import human

FIRST_CSV_ROW, FIRST_PARQUET_ROW = 2, 1
PARQUET_ROWS = 16384  # of a batch
BLOCK_BYTES = 1 << 20  # of a CSV file that are read at a time; no row may be longer
HEADER_BYTES = 1 << 20
SEPARATORS = {";": "semicolons", "\t": "tabs"}
_WRONG_LENGTH = re.compile(r"Row #([0-9]+): Expected ([0-9]+) columns, got ([0-9]+)")
Cells = Any  # a pyarrow.Array; pyarrow has no types


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Some rows of a table."""

    columns: Mapping[str, Cells]
    rows: npt.NDArray[np.int64]  # their numbers

    def __len__(self) -> int:
        return len(self.rows)


def require_pyarrow() -> None:
    """Raise InvalidInput if tables cannot be read on this machine."""
    if importlib.util.find_spec("pyarrow") is None:
        raise InvalidInput(
            f"reading tables needs pyarrow, which is not installed; run {pip_install('tables')}",
            field="pyarrow",
        )


def read_header(path: Path) -> tuple[str, ...]:
    """Return the names of a table's columns, composed and without white space around them.

    Raises InvalidInput if there are none.
    """
    require_pyarrow()
    names = tuple(_name(name) for name in (_csv_header(path) if kind_of(str(path)) == CSV else _parquet_header(path)))
    twice = [name for name in names if name and names.count(name) > 1]
    if twice:
        raise InvalidInput(f"{path} has {names.count(twice[0])} columns with the name {twice[0]!r}; names must differ")
    return names


def read_batches(path: Path, names: Sequence[str], notes: list[str]) -> Iterator[Batch]:
    """Yield the rows of these columns, which `read_header` has found; add sentences about odd rows to `notes`."""
    return _csv_batches(path, names, notes) if kind_of(str(path)) == CSV else _parquet_batches(path, names)


def _csv_header(path: Path) -> list[str]:
    try:
        with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
            names = next(csv.reader(_lines(file), strict=True), [])
    except csv.Error as error:
        raise InvalidInput(f"{path} has a header that cannot be read: {error}", field="header", value=error) from error
    if not any(name.strip() for name in names):
        raise InvalidInput(f"{path} has no header; its first row must name the columns", field="header")
    if any("\ud800" <= character <= "\udfff" for name in names for character in name):
        raise InvalidInput(
            f"{path} has a header that is not UTF-8; save the file as UTF-8", field="header", value="not UTF-8"
        )
    for separator, word in SEPARATORS.items():
        if len(names) == 1 and separator in names[0]:
            raise InvalidInput(f"{path} has columns that are separated by {word}; they must be separated by commas")
    return names


def _name(cell: str) -> str:
    return composed(cell.strip())


def _lines(file: TextIO) -> Iterator[str]:
    while line := file.readline(HEADER_BYTES):
        if len(line) == HEADER_BYTES:
            raise csv.Error(f"a line has {HEADER_BYTES:,} characters or more")
        yield line


def _parquet_header(path: Path) -> list[str]:
    with _arrow_errors(path, "a Parquet file"), open_parquet(path) as file:
        return list(file.schema.names)


def _csv_batches(path: Path, names: Sequence[str], notes: list[str]) -> Iterator[Batch]:
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    header = _csv_header(path)
    positions = {_name(name): position for position, name in enumerate(header)}
    wanted = [positions[composed(name)] for name in names]
    texts = {header[position]: pa.string() for position in wanted}
    rows, start = count_rows(path, BLOCK_BYTES, notes), FIRST_CSV_ROW
    with _arrow_errors(path, "a CSV file"):
        reader = arrow_csv.open_csv(
            path,
            arrow_csv.ReadOptions(use_threads=False, block_size=BLOCK_BYTES),  # with threads, errors name no rows
            arrow_csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
            arrow_csv.ConvertOptions(column_types=dict.fromkeys(header, pa.binary()) | texts),
        )
        for batch in reader:
            filled = _filled_rows(batch.columns, wanted)
            cells = {name: batch.column(position).take(filled) for name, position in zip(names, wanted, strict=True)}
            yield Batch(columns=cells, rows=start + np.asarray(filled, np.int64))
            start += len(batch)
    if start - FIRST_CSV_ROW != max(rows - 1, 0):
        raise InvalidInput(f"{path} has {rows - 1:,} rows, of which {start - FIRST_CSV_ROW:,} can be read")


def _filled_rows(columns: Sequence[Cells], wanted: Sequence[int]) -> Cells:
    """Return the positions of the rows with a cell that is not blank; the `wanted` columns are text, others bytes."""
    import pyarrow as pa
    import pyarrow.compute as pc

    blank = np.arange(len(columns[0]))  # those that may be
    for position in wanted:
        empty = pc.equal(pc.utf8_trim_whitespace(columns[position].take(pa.array(blank))), "")
        blank = blank[np.asarray(empty)]
    for column in columns:
        if len(blank):
            blank = blank[[not cell.strip() for cell in column.take(pa.array(blank)).to_pylist()]]
    return pa.array(np.delete(np.arange(len(columns[0])), blank))


@dataclass(frozen=True, slots=True)
class ParquetTable:
    """An open Parquet file, or a folder of them, as Spark writes it."""

    schema: Any  # a pyarrow.Schema
    batches: Callable[[Sequence[str] | None], Iterator[Any]]  # of some columns, or all: pyarrow.RecordBatches


@contextmanager
def open_parquet(path: Path) -> Iterator[ParquetTable]:
    """Open a table; rows are those of the files in the order of their names."""
    if path.is_dir():
        import pyarrow.dataset

        found = pyarrow.dataset.dataset(path, format="parquet", partitioning="hive")
        yield ParquetTable(
            found.schema, lambda names: found.to_batches(columns=names, batch_size=PARQUET_ROWS, use_threads=False)
        )
        return
    import pyarrow.parquet

    with pyarrow.parquet.ParquetFile(path) as file:
        yield ParquetTable(
            file.schema_arrow, lambda names: file.iter_batches(PARQUET_ROWS, columns=names, use_threads=False)
        )


def _parquet_batches(path: Path, names: Sequence[str]) -> Iterator[Batch]:
    with _arrow_errors(path, "a Parquet file"), open_parquet(path) as file:
        found = {_name(name): name for name in file.schema.names}
        raw = {name: found[composed(name)] for name in names}
        start = FIRST_PARQUET_ROW
        for batch in file.batches(list(raw.values())):
            cells = {name: batch.column(raw[name]) for name in names}
            yield Batch(columns=cells, rows=np.arange(start, start + len(batch)))
            start += len(batch)


@contextmanager
def _arrow_errors(path: Path, kind: str) -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError) as error:
        message = str(error)
        if "Empty CSV" in message:  # nothing follows the header
            return
        if found := _WRONG_LENGTH.search(message):
            row, expected, actual = map(int, found.groups())
            raise InvalidInput(
                f"{path}, row {row} has {actual} cell{'' if actual == 1 else 's'} where the header has {expected}; "
                "a cell with a comma, a quote or a line break must be in quotes",
                field=f"cells of row {row}",
                value=actual,
            ) from error
        if "UTF8" in message:
            line = _line_of_other_encoding(path)
            raise InvalidInput(f"{path} is not UTF-8 in line {line}; save it as UTF-8") from error
        if "straddling" in message:
            raise InvalidInput(f"{path} has a row of more than {human(BLOCK_BYTES)}; is a quote missing?") from error
        reason = f"{path} is not {kind}, or is damaged"
        raise UnusableTable(f"{reason}: {message.splitlines()[0]}", reason) from error


def _line_of_other_encoding(path: Path) -> int:
    with path.open("rb") as file:
        return next((number for number, line in enumerate(file, start=1) if not _is_utf8(line)), 1)


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True
