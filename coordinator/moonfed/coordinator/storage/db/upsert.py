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
    if values:
        connection.execute(_replacing(connection, table, None), values)


def insert_or_replace_if(
    connection: sql.Connection, table: sql.Table, row: Mapping[str, Any], where: sql.ColumnElement[bool]
) -> bool:
    """Inserts a row; where the key is taken, it takes the place of a row of that kind only. Whether it is there."""
    statement = _replacing(connection, table, where).values(row).returning(*table.primary_key)
    return connection.execute(statement).first() is not None


def _replacing(
    connection: sql.Connection, table: sql.Table, where: sql.ColumnElement[bool] | None
) -> sqlite.Insert | postgresql.Insert:
    statement = _insert(connection, table)
    others = {column.name: statement.excluded[column.name] for column in table.columns if not column.primary_key}
    return statement.on_conflict_do_update(index_elements=list(table.primary_key), set_=others, where=where)


def _insert(connection: sql.Connection, table: sql.Table) -> sqlite.Insert | postgresql.Insert:
    return postgresql.insert(table) if connection.dialect.name == "postgresql" else sqlite.insert(table)
