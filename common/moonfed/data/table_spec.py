"""The columns of tables that a model takes, and their encoding as features. The manifest needs it, so no numpy.

A numeric column is one feature. A categorical column is one feature for each of its categories, 1 for the category of
the row and 0 for the others. So every device encodes a row in the same way, whatever its own table holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from moonfed.validate import require, require_line


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table."""

    name: str
    categories: tuple[str, ...] = ()  # none: the column is numeric

    def __post_init__(self) -> None:
        _require_name("name of a column", self.name)
        for category in self.categories:
            _require_name(f"category of column {self.name!r}", category)
        differ = len(set(self.categories)) == len(self.categories)
        require(differ, f"categories of column {self.name!r}", self.categories, "names that all differ")

    @property
    def width(self) -> int:
        """The number of features."""
        return len(self.categories) or 1

    def to_document(self) -> dict[str, Any]:
        """Return JSON values."""
        return {"name": self.name, **({"categories": list(self.categories)} if self.categories else {})}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Column:
        """Read what `to_document` returned; raise KeyError, TypeError or InvalidInput."""
        categories = tuple(str(name) for name in document.get("categories", ()))
        return cls(name=str(document["name"]), categories=categories)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSpec:
    """The columns that a model takes, in the order of its features, and those with what it predicts.

    A series is a window of rows, and columns that are predicted for later rows may be among those that it takes.
    """

    columns: tuple[Column, ...]
    targets: tuple[str, ...]  # none: the rows are only reproduced
    group: str = ""  # the column that tells apart series whose rows are in one table; empty: the table is one series

    def __post_init__(self) -> None:
        names = [column.name for column in self.columns]
        for target in self.targets:
            _require_name("target", target)
        require(bool(names), "columns", names, "at least one")
        require(len(set(names)) == len(names), "columns", names, "names that all differ")
        require(len(set(self.targets)) == len(self.targets), "targets", self.targets, "names that all differ")
        if self.group:
            _require_name("group", self.group)
            others = {*names, *self.targets}
            require(self.group not in others, "group", self.group, f"another column than {', '.join(sorted(others))}")

    @property
    def width(self) -> int:
        """The number of features of a row."""
        return sum(column.width for column in self.columns)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns' names in order."""
        return tuple(column.name for column in self.columns)

    def require_others(self) -> None:
        """Raise InvalidInput if a model would predict what it takes."""
        for target in self.targets:
            require(target not in self.names, "target", target, f"another column than {', '.join(self.names)}")

    def to_document(self) -> dict[str, Any]:
        """Return JSON values."""
        document: dict[str, Any] = {
            "columns": [column.to_document() for column in self.columns],
            "targets": list(self.targets),
        }
        return document | ({"group": self.group} if self.group else {})

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> TableSpec:
        """Read what `to_document` returned; raise KeyError, TypeError or InvalidInput."""
        columns: Sequence[Mapping[str, Any]] = document["columns"]
        return cls(
            columns=tuple(map(Column.from_document, columns)),
            targets=tuple(map(str, document["targets"])),
            group=str(document.get("group", "")),
        )


def _require_name(field: str, value: str) -> None:
    require_line(field, value)
    require(bool(value) and value == value.strip(), field, value, "text that neither begins nor ends with a space")
