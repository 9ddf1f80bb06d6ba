"""A description of tables, written once and used for every device: columns, categories, target and normalisation.

    {"format": "moonfed-columns/2",
     "target": {"columns": ["churn"], "kind": "class", "names": ["no", "yes"], "shape": []},
     "columns": [
      {"name": "age", "mean": 41.2, "deviation": 12.1},
      {"name": "plan", "categories": ["basic", "plus"]}]}

With a `window`, samples are that many rows, of the same `group` if a column is named. It is JSON that people may edit.
A bundle contains all of it: columns and target in its manifest, means and deviations in its plan and graph.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from moonfed.bundle.manifest import InputSpec
from moonfed.bundle.target import TargetSpec
from moonfed.data.table_spec import Column, TableSpec
from moonfed.errors import InvalidInput, VersionMismatch
from moonfed.files import require_file, write_durably
from moonfed.format_version import require_readable
from moonfed.validate import require, require_finite, require_positive, require_whole

FORMAT = "moonfed-columns/2"
DIGITS = 6  # significant ones, of deviations
_KEYS = {"format", "target", "columns", "window", "group"}
_TARGET_KEYS = {"columns", "kind", "names", "shape", "units", "mean", "deviation"}
_COLUMN_KEYS = ({"name", "mean", "deviation"}, {"name", "categories"})


@dataclass(frozen=True, slots=True)
class Scale:
    """Mean and standard deviation of a numeric column."""

    mean: float
    deviation: float


def rounded_scale(mean: float, deviation: float) -> Scale:
    """Round both, the mean to as many decimals as the deviation; that of numbers that never change is 1."""
    rounded = float(f"{deviation:.{DIGITS}g}") or 1.0
    further = max(0, math.ceil(math.log10(abs(mean) / rounded))) if mean else 0
    return Scale(float(f"{mean:.{min(DIGITS + further, 17)}g}"), rounded)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDescription:
    """The columns of tables, their target, and the scales of numeric columns."""

    table: TableSpec
    target: TargetSpec
    scales: Mapping[str, Scale]  # by the name of the column
    window: int = 0  # rows of a sample, which is a series; 0: each row is a sample

    def __post_init__(self) -> None:
        require_whole("window", self.window, 0)
        require_columns_of(self.target, self.table.targets)
        require(self.window > 0 or not self.table.group, "group", self.table.group, "left out without a window")
        if len(self.target.shape) < 2:
            self.table.require_others()
        for name, scale in self.scales.items():
            require_finite(f"mean of column {name!r}", scale.mean)
            require_positive(f"deviation of column {name!r}", scale.deviation)

    @property
    def input(self) -> InputSpec:
        """One raw sample."""
        if self.window:
            return InputSpec(kind="series", shape=(self.window, self.table.width), table=self.table)
        return InputSpec(kind="features", shape=(self.table.width,), table=self.table)

    @property
    def mean(self) -> tuple[float, ...]:
        """The mean of each feature, also of a series; 0 for those of categories, which are not normalised."""
        return tuple(scale.mean for scale in self._feature_scales())

    @property
    def deviation(self) -> tuple[float, ...]:
        """The standard deviation of each feature; 1 for those of categories."""
        return tuple(scale.deviation for scale in self._feature_scales())

    def to_text(self) -> str:
        """Return JSON with one line for each column."""
        columns = ",\n    ".join(json.dumps(self._column(column), ensure_ascii=False) for column in self.table.columns)
        target = {"columns": list(self.table.targets), **self.target.to_document()}
        fields: dict[str, Any] = {"format": FORMAT, "target": target}
        if self.window:
            fields["window"] = self.window
        if self.table.group:
            fields["group"] = self.table.group
        lines = "".join(f'  "{name}": {json.dumps(value, ensure_ascii=False)},\n' for name, value in fields.items())
        return f'{{\n{lines}  "columns": [\n    {columns}\n  ]\n}}\n'

    def _feature_scales(self) -> list[Scale]:
        unscaled = Scale(0.0, 1.0)
        return [self.scales.get(column.name, unscaled) for column in self.table.columns for _ in range(column.width)]

    def _column(self, column: Column) -> dict[str, Any]:
        document = column.to_document()
        scale = self.scales.get(column.name)
        return document | ({"mean": scale.mean, "deviation": scale.deviation} if scale else {})


def read_description(path: Path) -> TableDescription:
    """Read a description; InvalidInput names the file and the field that is wrong."""
    require_file("columns", path)
    try:
        return _from_document(json.loads(path.read_bytes()))
    except (InvalidInput, VersionMismatch) as error:  # it names the field, but not the file
        raise type(error)(f"{path}: {error}") from error
    except KeyError as error:
        raise InvalidInput(f"{path} lacks the field {error.args[0]!r}") from error
    except (TypeError, ValueError, AttributeError, RecursionError) as error:
        raise InvalidInput(f"{path} is not a description of columns: {error}", field="columns", value=path) from error


def write_description(path: Path, description: TableDescription) -> None:
    """Write a description."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_durably(path, description.to_text().encode())


def _from_document(document: Mapping[str, Any]) -> TableDescription:
    require_readable("the description", document.get("format"), (FORMAT,))
    _require_known("field", document, [_KEYS])
    columns: Sequence[Mapping[str, Any]] = document["columns"]
    for column in columns:
        _require_known(f"field of column {column.get('name')!r}", column, _COLUMN_KEYS)
    target: Mapping[str, Any] = document["target"]
    _require_known("field of target", dict(target), [_TARGET_KEYS])
    return TableDescription(
        table=TableSpec.from_document({**document, "targets": target["columns"]}),
        target=TargetSpec.from_document(target),
        window=document.get("window", 0),
        scales={
            str(column["name"]): Scale(float(column["mean"]), float(column["deviation"]))
            for column in columns
            if "categories" not in column
        },
    )


def require_columns_of(target: TargetSpec, columns: Sequence[str]) -> None:
    """Raise InvalidInput unless so many columns can hold such targets."""
    counts = {"class": (1,), "labels": (len(target.names),), "values": (len(target.names),), "none": (0, 1)}
    require(target.kind in counts, "target.kind", target.kind, f"one of {', '.join(counts)} for tables")
    allowed = " or ".join(map(str, counts[target.kind]))
    require(len(columns) in counts[target.kind], "target.columns", list(columns), f"{allowed} for {target.describe()}")


def _require_known(name: str, found: Mapping[str, Any], allowed: Sequence[set[str]]) -> None:
    """Raise InvalidInput for unknown fields, which would be ignored."""
    known = next((keys for keys in allowed if set(found) <= keys), None)
    if known is None:
        choices = " or ".join(", ".join(sorted(keys)) for keys in allowed)
        unknown = sorted(set(found) - {key for keys in allowed for key in keys}) or sorted(set(found))
        raise InvalidInput(field=name, value=unknown[0], rest=f"; the fields must be {choices}")
