"""Upserts, which SQLite and PostgreSQL both have but standard SQL lacks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sql
from sqlalchemy.dialects import postgresql, sqlite


def insert_or_ignore(connection: sql.Connection, table: sql.Table, values: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows; keep the existing row where the key is taken."""
    if values:
        connection.execute(_insert(connection, table).on_conflict_do_nothing(), values)


def insert_or_replace(connection: sql.Connection, table: sql.Table, values: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows; replace the existing row where the key is taken."""
    if values:
        connection.execute(_replacing(connection, table, None), values)


def insert_or_replace_if(
    connection: sql.Connection, table: sql.Table, row: Mapping[str, Any], where: sql.ColumnElement[bool]
) -> bool:
    """Insert a row; replace an existing row only if it matches `where`. Return True if the row was written."""
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
