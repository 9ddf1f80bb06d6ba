"""A CSV or Parquet file whose columns the bundle names: rows become features, and the target columns targets.

For a series, each sample is a window of rows, in the order of the file, and its target the rows that follow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from moonfed.bundle.manifest import InputSpec
from moonfed.bundle.target import TargetSpec
from moonfed.data.bad_cells import BadCells, UnusableTable
from moonfed.data.data_set import DataSet, Inputs, Targets
from moonfed.data.fingerprint import file_fingerprint
from moonfed.data.source import IF_PRESENT, REQUIRED, HeartbeatCallback, LabelUse, report, wants_labels
from moonfed.data.spelling import composed
from moonfed.data.storage import Storage
from moonfed.data.table_cells import as_text, read_flags, read_numbers, read_positions
from moonfed.data.table_reader import Batch, read_batches, read_header, require_pyarrow
from moonfed.data.table_spec import TableSpec
from moonfed.data.windows import find_windows
from moonfed.errors import InvalidInput
from moonfed.files import require_file


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
        storage: Storage | None = None,
    ) -> DataSet:
        """Read all rows; UnusableTable reports cells by row and column."""
        heartbeat()
        require_table(self._option, self.path)
        table = self._require_table(spec)
        header = read_header(self.path)
        columns = self._target_columns(table)
        present = bool(columns) and (all(composed(column) in header for column in columns) or bool(self._target))
        used = wants_labels(IF_PRESENT if target.is_input and labels == REQUIRED else labels, present)
        rows = TableRows(self.path, table, columns if used else (), target)
        require_columns(self.path, header, rows.names, ", which the model takes")
        storage, is_series = storage or Storage(), spec.kind == "series"
        features = storage.rows("rows" if is_series else "inputs", (table.width,), np.float32)
        targets = storage.rows("answers" if is_series else "targets", rows.target_shape, rows.target_dtype)
        numbers, groups = storage.rows("numbers", (), np.int64), list[str]()
        for batch in rows.read(heartbeat):
            features.append(batch.features)
            numbers.append(batch.rows)
            if batch.targets is not None:
                targets.append(batch.targets)
            groups += batch.groups
        notes = list(rows.notes)
        if len(features) == 0:
            raise InvalidInput(f"{self.path} has no rows; at least one is needed")
        found, inputs = targets.array() if used else None, features.array()
        positions, windows = numbers.array(), None
        if is_series:
            forecast = used and target.kind == "values" and len(target.shape) == 2
            windows = find_windows(groups, len(inputs), spec.shape[0], target.shape[0] if forecast else 0)
            windows.require_some(str(self.path))
            notes += windows.notes(str(self.path))
            if found is not None:
                found = windows.after(found, storage) if forecast else found[windows.lasts]
            inputs, windows = windows.of(inputs, storage), windows.numbered(positions)
            positions = windows.lasts
        if notes != self._reported:
            report(notes)
        self._reported = notes
        return DataSet(
            inputs=inputs,
            targets=found,
            target=target,
            table=table,
            origin=str(self.path),
            file=self.path,
            rows=positions,
            windows=windows,
            notes=tuple(notes),
        )

    def _target_columns(self, table: TableSpec) -> tuple[str, ...]:
        if self._target and len(table.targets) > 1:
            raise InvalidInput(
                field="target",
                value=self._target,
                rest=f"; it replaces one column, and the bundle predicts several: {', '.join(table.targets)}",
            )
        return (self._target,) if self._target else table.targets

    def _require_table(self, spec: InputSpec) -> TableSpec:
        if spec.table is None:
            tables = spec.kind in ("features", "series")
            advice = "; name its columns with `moonfed-export bundle --columns`" if tables else ""
            raise InvalidInput(
                f"{self.path} is a table; the model takes {spec.describe()}{advice}", field="table", value=self.path
            )
        if spec.kind == "features" and composed(self._target) in map(composed, spec.table.names):
            raise InvalidInput(
                field="target", value=self._target, rest=", from which the bundle predicts; it must be another column"
            )
        return spec.table


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedRows:
    """Rows in the bundle's form."""

    features: Inputs  # [n, width]
    targets: Targets | None  # [n] or [n, columns]
    rows: npt.NDArray[np.int64]  # [n], their numbers
    groups: Sequence[str]  # n, or none without a column for them


class TableRows:
    """The rows of a table, encoded batch by batch."""

    def __init__(self, path: Path, table: TableSpec, columns: Sequence[str], target: TargetSpec) -> None:
        """`columns`: those with the targets; none: they are not read."""
        self._path = path
        self._table = table
        self._columns = tuple(columns)
        self._target = target
        self.notes: list[str] = []  # sentences about odd rows, once they are read

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that are read, each once."""
        return tuple(dict.fromkeys([*self._table.names, *self._columns, *filter(None, [self._table.group])]))

    @property
    def target_shape(self) -> tuple[int, ...]:
        """The shape of the targets of one row."""
        return () if self._target.kind in ("class", "none") else (len(self._columns),)

    @property
    def target_dtype(self) -> type[np.generic]:
        """The dtype of the targets."""
        return np.dtype(self._target.dtype).type

    def read(self, heartbeat: HeartbeatCallback = lambda: None) -> Iterator[EncodedRows]:
        """Yield the rows in batches; raise UnusableTable at the end if cells are bad."""
        bad = BadCells(self._path)
        for batch in read_batches(self._path, self.names, self.notes):
            heartbeat()
            features, targets = self._encode(batch, bad), self._targets(batch, bad)
            groups = self._groups(batch, bad)
            if not len(bad):
                yield EncodedRows(features=features, targets=targets, rows=batch.rows, groups=groups)
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

    def _targets(self, batch: Batch, bad: BadCells) -> Targets | None:
        if not self._columns:
            return None
        first = len(self._table.columns)
        if self._target.kind == "class":
            return read_positions(batch, self._columns[0], first, self._target.names, bad)
        known = [*self._table.names]
        read = read_numbers if self._target.kind == "values" else read_flags
        own = [
            (name, known.index(name) if name in known else first + place) for place, name in enumerate(self._columns)
        ]
        # a column that the model also takes is reported once
        found = [read(batch, name, place, BadCells(self._path) if name in known else bad) for name, place in own]
        targets = np.stack(found, axis=1).astype(self._target.dtype)
        return targets[:, 0] if self._target.kind == "none" else targets

    def _groups(self, batch: Batch, bad: BadCells) -> Sequence[str]:
        if not self._table.group:
            return ()
        return [
            text or "" for text in as_text(batch.columns[self._table.group], bad.place(self._table.group)).to_pylist()
        ]


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
