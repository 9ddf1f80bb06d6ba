"""A CSV or Parquet file whose columns the bundle names: rows become features, and the target column labels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from moonfed.bundle.manifest import InputSpec
from moonfed.bundle.target import TargetSpec
from moonfed.data.bad_cells import BadCells, UnusableTable
from moonfed.data.data_set import DataSet, Inputs, Labels
from moonfed.data.fingerprint import file_fingerprint
from moonfed.data.source import REQUIRED, HeartbeatCallback, LabelUse, report, wants_labels
from moonfed.data.spelling import composed
from moonfed.data.table_cells import read_numbers, read_positions
from moonfed.data.table_reader import Batch, read_batches, read_header, require_pyarrow
from moonfed.data.table_spec import TableSpec
from moonfed.errors import InvalidInput
from moonfed.files import require_file

Item = TypeVar("Item", bound=np.generic)
GROWTH = 1.25  # of the memory for rows, when it is full


class TableSource:
    """Rows of one table."""

    decodes = False

    def __init__(self, path: Path, target: str = "", option: str = "data") -> None:
        """`target`: the column with the labels, if it is another one than the bundle names; `option`: for messages."""
        self.path = path
        self._target = target
        self._option = option
        self._reported: list[str] = []

    def check(self) -> None:
        """Raise NotFound unless the file is there, InvalidInput if tables cannot be read or it has no header."""
        require_table(self._option, self.path)
        require_pyarrow()
        read_header(self.path)

    def fingerprint(self) -> str:
        """Hash path, size and modification time."""
        require_table(self._option, self.path)
        return file_fingerprint(self.path)

    def read(
        self,
        spec: InputSpec,
        target: TargetSpec,
        heartbeat: HeartbeatCallback = lambda: None,
        labels: LabelUse = REQUIRED,
    ) -> DataSet:
        """Read all rows; UnusableTable reports cells by row and column."""
        heartbeat()
        require_table(self._option, self.path)
        table = self._require_table(spec)
        header = read_header(self.path)
        column = self._target or table.target
        used = wants_labels(labels, composed(column) in header or bool(self._target))
        rows = TableRows(self.path, table, column if used else None, target.names)
        require_columns(self.path, header, rows.names, ", which the model takes")
        features, targets = _Growing((table.width,), np.float32), _Growing((), np.int64)
        numbers = _Growing((), np.int64)
        for batch in rows.read(heartbeat):
            features.append(batch.features)
            numbers.append(batch.rows)
            if batch.labels is not None:
                targets.append(batch.labels)
        if rows.notes != self._reported:
            report(rows.notes)
        self._reported = rows.notes
        if len(features) == 0:
            raise InvalidInput(f"{self.path} has no rows; at least one is needed")
        return DataSet(
            inputs=features.array(),
            targets=targets.array() if used else None,
            target=target,
            table=table,
            origin=str(self.path),
            file=self.path,
            rows=numbers.array(),
            notes=tuple(rows.notes),
        )

    def _require_table(self, spec: InputSpec) -> TableSpec:
        if spec.table is None:
            advice = "; name its columns with `moonfed-export bundle --columns`" if spec.kind == "features" else ""
            raise InvalidInput(
                f"{self.path} is a table; the model takes {spec.describe()}{advice}", field="table", value=self.path
            )
        if composed(self._target) in map(composed, spec.table.names):
            raise InvalidInput(
                field="target", value=self._target, rest=", from which the bundle predicts; it must be another column"
            )
        return spec.table


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedRows:
    """Rows in the bundle's form."""

    features: Inputs  # [n, width]
    labels: Labels | None  # [n]
    rows: npt.NDArray[np.int64]  # [n], their numbers


class TableRows:
    """The rows of a table, encoded batch by batch."""

    def __init__(self, path: Path, table: TableSpec, target: str | None, classes: Sequence[str]) -> None:
        """`target`: the column with the labels; None: they are not read."""
        self._path = path
        self._table = table
        self._target = target
        self._classes = classes
        self.notes: list[str] = []  # sentences about odd rows, once they are read

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that are read."""
        return (*self._table.names, *([] if self._target is None else [self._target]))

    def read(self, heartbeat: HeartbeatCallback = lambda: None) -> Iterator[EncodedRows]:
        """Yield the rows in batches; raise UnusableTable at the end if cells are bad."""
        bad = BadCells(self._path)
        for batch in read_batches(self._path, self.names, self.notes):
            heartbeat()
            features, labels = self._encode(batch, bad), self._labels(batch, bad)
            if not len(bad):
                yield EncodedRows(features=features, labels=labels, rows=batch.rows)
        bad.require_none()

    def _encode(self, batch: Batch, bad: BadCells) -> Inputs:
        features, start = np.zeros((len(batch), self._table.width), np.float32), 0
        for position, column in enumerate(self._table.columns):
            if column.categories:
                found = read_positions(batch, column.name, position, column.categories, bad)
                features[np.arange(len(batch)), start + found] = 1
            else:
                features[:, start] = read_numbers(batch, column.name, position, bad)
            start += column.width
        return features

    def _labels(self, batch: Batch, bad: BadCells) -> Labels | None:
        if self._target is None:
            return None
        return read_positions(batch, self._target, len(self._table.columns), self._classes, bad)


def require_table(name: str, path: Path) -> None:
    """Raise NotFound, naming the option, unless the file is there, or the folder of a table in Parquet files."""
    if not path.is_dir():
        require_file(name, path)


def require_columns(path: Path, header: Sequence[str], names: Sequence[str], reason: str = "") -> None:
    """Raise UnusableTable unless the table has these columns; `reason`: why, for the message."""
    missing = [name for name in names if composed(name) not in header]
    if missing:
        columns = f"column{'s' if len(missing) > 1 else ''} {', '.join(map(repr, missing))}"
        sentence = f"{path} lacks the {columns}{reason}"  # without a header, its first row is data
        raise UnusableTable(f"{sentence}; its columns are {', '.join(header)}", sentence)


class _Growing(Generic[Item]):
    """An array that grows in place, so that large tables are in memory only once."""

    def __init__(self, shape: tuple[int, ...], dtype: type[Item]) -> None:
        self._array: npt.NDArray[Item] = np.empty((0, *shape), dtype)
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def append(self, rows: npt.NDArray[Item]) -> None:
        end = self._length + len(rows)
        if end > len(self._array):
            self._resize(max(end, int(GROWTH * len(self._array))))
        self._array[self._length : end] = rows
        self._length = end

    def array(self) -> npt.NDArray[Item]:
        """Return the rows; nothing can be appended afterwards."""
        self._resize(self._length)
        return self._array

    def _resize(self, length: int) -> None:
        self._array.resize((length, *self._array.shape[1:]), refcheck=False)
