"""Tables in files: metrics by round, parameters, and outcomes by device. CSV and Parquet share this module."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from moonfed.coordinator.trackers.snapshot import DevicePoint, RunSnapshot
from moonfed.coordinator.trackers.tracker import TrackerOptions
from moonfed.errors import InvalidInput
from moonfed.registry import Value

Cell = int | float | str | None
Columns = Mapping[str, Sequence[Cell]]
WriteTable = Callable[[Path, Columns, Mapping[str, Value]], None]


@contextmanager
def open_tables(options: TrackerOptions, suffix: str, write_table: WriteTable) -> Iterator[TableFiles]:
    """Open a file, which takes the metrics, or a directory, which takes everything."""
    target = Path(options.target)
    if target.suffix == suffix:
        if options.devices:
            raise InvalidInput(field="target", value=options.target, rest="; with --devices it must be a directory")
        if target.is_dir():
            raise InvalidInput(
                field="target", value=options.target, allowed=f"a file, or a directory without {suffix!r}"
            )
    elif target.suffix in (".csv", ".parquet", ".json", ".tsv", ".xlsx") or target.is_file():
        raise InvalidInput(
            field="target", value=options.target, allowed=f"a directory, or a file that ends in {suffix}"
        )
    yield TableFiles(target, suffix, write_table)


class TableFiles:
    """One file, or a directory of them. Every file is replaced as a whole."""

    def __init__(self, target: Path, suffix: str, write_table: WriteTable) -> None:
        self._target = target
        self._suffix = suffix
        self._write_table = write_table

    @property
    def place(self) -> str:
        """The file or directory."""
        return str(self._target)

    def write(self, snapshot: RunSnapshot) -> None:
        """Write all tables, pictures and files."""
        if self._target.suffix == self._suffix:
            self._target.parent.mkdir(parents=True, exist_ok=True)
            self._write_table(self._target, metric_columns(snapshot), snapshot.parameters)
            return
        self._target.mkdir(parents=True, exist_ok=True)
        tables = {"metrics": metric_columns(snapshot), "parameters": parameter_columns(snapshot.parameters)}
        if snapshot.device_points:
            tables["devices"] = device_columns(snapshot.device_points)
        for name, columns in tables.items():
            self._write_table(self._target / f"{name}{self._suffix}", columns, snapshot.parameters)
        pictures = {f"pictures/{name}.png": path for name, path in snapshot.pictures.items()}
        for name, path in {**pictures, **snapshot.files}.items():
            (self._target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, self._target / name)


def metric_columns(snapshot: RunSnapshot) -> dict[str, list[Cell]]:
    """Return one row per round, one column per metric; None where there is no value."""
    rows = snapshot.tables()
    names = sorted({name for row in rows.values() for name in row})
    return {"round": list(rows), **{name: [row.get(name) for row in rows.values()] for name in names}}


def parameter_columns(parameters: Mapping[str, Value]) -> dict[str, list[Cell]]:
    """Return one row per parameter."""
    return {"name": list(parameters), "value": [str(value) for value in parameters.values()]}


def device_columns(points: Sequence[DevicePoint]) -> dict[str, list[Cell]]:
    """Return one row per round and device, one column per series; None where there is no value."""
    rows: dict[tuple[int, str], dict[str, float]] = {}
    for point in points:
        rows.setdefault((point.round, point.device), {})[point.name] = point.value
    ordered = sorted(rows)
    names = sorted({point.name for point in points})
    return {
        "round": [round_ for round_, _ in ordered],
        "device": [device for _, device in ordered],
        **{name: [rows[key].get(name) for key in ordered] for name in names},
    }
