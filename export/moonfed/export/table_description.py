"""A description of tables, written once and used for every device: columns, categories, classes and normalisation.

    {"format": "moonfed-columns/1", "target": "churn", "classes": ["no", "yes"], "columns": [
      {"name": "age", "mean": 41.2, "deviation": 12.1},
      {"name": "plan", "categories": ["basic", "plus"]}]}

It is JSON that people may edit. A bundle contains all of it: columns and classes in its manifest, means and deviations
in its plan and graph.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from moonfed.bundle.manifest import InputSpec
from moonfed.bundle.target import TargetSpec, class_target
from moonfed.data.table_spec import Column, TableSpec
from moonfed.errors import InvalidInput
from moonfed.files import require_file, write_durably
from moonfed.validate import require, require_finite, require_line, require_positive

FORMAT = "moonfed-columns/1"
_KEYS = {"format", "target", "classes", "columns"}
_COLUMN_KEYS = ({"name", "mean", "deviation"}, {"name", "categories"})


@dataclass(frozen=True, slots=True)
class Scale:
    """Mean and standard deviation of a numeric column."""

    mean: float
    deviation: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDescription:
    """The columns of tables, the classes of their target, and the scales of numeric columns."""

    table: TableSpec
    classes: tuple[str, ...]
    scales: Mapping[str, Scale]  # by the name of the column

    def __post_init__(self) -> None:
        require(len(self.classes) >= 2, "classes", self.classes, "at least two names")
        require(len(set(self.classes)) == len(self.classes), "classes", self.classes, "names that all differ")
        for name in self.classes:
            require_line("name of a class", name)
            require(bool(name.strip()), "name of a class", name, "text that is not empty")
        for name, scale in self.scales.items():
            require_finite(f"mean of column {name!r}", scale.mean)
            require_positive(f"deviation of column {name!r}", scale.deviation)

    @property
    def target(self) -> TargetSpec:
        """One sample's target."""
        return class_target(self.classes)

    @property
    def input(self) -> InputSpec:
        """One raw sample."""
        return InputSpec(kind="features", shape=(self.table.width,), table=self.table)

    @property
    def mean(self) -> tuple[float, ...]:
        """The mean of each feature; 0 for those of categories, which are not normalised."""
        return tuple(scale.mean for scale in self._feature_scales())

    @property
    def deviation(self) -> tuple[float, ...]:
        """The standard deviation of each feature; 1 for those of categories."""
        return tuple(scale.deviation for scale in self._feature_scales())

    def to_text(self) -> str:
        """Return JSON with one line for each column."""
        columns = ",\n    ".join(json.dumps(self._column(column), ensure_ascii=False) for column in self.table.columns)
        target, classes = (json.dumps(value, ensure_ascii=False) for value in (self.table.target, list(self.classes)))
        return (
            f'{{\n  "format": "{FORMAT}",\n  "target": {target},\n  "classes": {classes},\n'
            f'  "columns": [\n    {columns}\n  ]\n}}\n'
        )

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
    except InvalidInput as error:  # it names the field, but not the file
        raise InvalidInput(f"{path}: {error}") from error
    except KeyError as error:
        raise InvalidInput(f"{path} lacks the field {error.args[0]!r}") from error
    except (TypeError, ValueError, AttributeError, RecursionError) as error:
        raise InvalidInput(f"{path} is not a description of columns: {error}", field="columns", value=path) from error


def write_description(path: Path, description: TableDescription) -> None:
    """Write a description."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_durably(path, description.to_text().encode())


def _from_document(document: Mapping[str, Any]) -> TableDescription:
    require(document.get("format") == FORMAT, "format", document.get("format"), repr(FORMAT))
    _require_known("field", document, [_KEYS])
    columns: Sequence[Mapping[str, Any]] = document["columns"]
    for column in columns:
        _require_known(f"field of column {column.get('name')!r}", column, _COLUMN_KEYS)
    return TableDescription(
        table=TableSpec.from_document(document),
        classes=tuple(str(name) for name in document["classes"]),
        scales={
            str(column["name"]): Scale(float(column["mean"]), float(column["deviation"]))
            for column in columns
            if "categories" not in column
        },
    )


def _require_known(name: str, found: Mapping[str, Any], allowed: Sequence[set[str]]) -> None:
    """Raise InvalidInput for unknown fields, which would be ignored."""
    known = next((keys for keys in allowed if set(found) <= keys), None)
    if known is None:
        choices = " or ".join(", ".join(sorted(keys)) for keys in allowed)
        unknown = sorted(set(found) - {key for keys in allowed for key in keys}) or sorted(set(found))
        raise InvalidInput(field=name, value=unknown[0], rest=f"; the fields must be {choices}")
