"""Inserting rows whose key may be there already: SQL's standard has nothing for it, both of our databases do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sql
from sqlalchemy.dialects import postgresql, sqlite


def insert_or_ignore(connection: sql.Connection, table: sql.Table, values: Sequence[Mapping[str, Any]]) -> None:
    """Inserts rows; where the key is taken, the row that stands there stays."""
    if values:
        connection.execute(_insert(connection, table).on_conflict_do_nothing(), values)


def insert_or_replace(connection: sql.Connection, table: sql.Table, values: Sequence[Mapping[str, Any]]) -> None:
    """Inserts rows; where the key is taken, they take the place of the row that stands there."""
    if not values:
        return
    statement = _insert(connection, table)
    others = {column.name: statement.excluded[column.name] for column in table.columns if not column.primary_key}
    connection.execute(statement.on_conflict_do_update(index_elements=list(table.primary_key), set_=others), values)


def _insert(connection: sql.Connection, table: sql.Table) -> sqlite.Insert | postgresql.Insert:
    return postgresql.insert(table) if connection.dialect.name == "postgresql" else sqlite.insert(table)
