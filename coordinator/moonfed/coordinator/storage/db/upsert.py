"""Upserts, which SQLite and PostgreSQL both have but standard SQL lacks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import sqlalchemy as sql
from sqlalchemy.dialects import postgresql, sqlite


def insert_or_ignore(connection: sql.Connection, table: sql.Table, values: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows; keep the existing row where the key is taken."""
    if values:
        connection.execute(_ignoring(connection.dialect.name, table), values)


def insert_or_replace(connection: sql.Connection, table: sql.Table, values: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows; replace the existing row where the key is taken."""
    if values:
        connection.execute(_replacing(connection.dialect.name, table), values)


def insert_or_replace_if(
    connection: sql.Connection, table: sql.Table, values: Sequence[Mapping[str, Any]], where: sql.ColumnElement[bool]
) -> set[tuple[Any, ...]]:
    """Insert rows with different keys; replace an existing row only if it matches `where`. Return the written keys.

    `where` is one of a few constants, since a statement is built once for each and kept. SQLAlchemy compiles it each
    time, which takes longer than to execute it: pass several rows at once.
    """
    if not values:
        return set()
    return set(map(tuple, connection.execute(_replacing_if(connection.dialect.name, table, where), values)))


@cache  # building and compiling a statement takes longer than executing it
def _ignoring(dialect: str, table: sql.Table) -> sqlite.Insert | postgresql.Insert:
    return _insert(dialect, table).on_conflict_do_nothing()


@cache
def _replacing_if(dialect: str, table: sql.Table, where: sql.ColumnElement[bool]) -> sql.Executable:
    return _replacing(dialect, table, where).returning(*table.primary_key)


@cache
def _replacing(
    dialect: str, table: sql.Table, where: sql.ColumnElement[bool] | None = None
) -> sqlite.Insert | postgresql.Insert:
    statement = _insert(dialect, table)
    others = {column.name: statement.excluded[column.name] for column in table.columns if not column.primary_key}
    return statement.on_conflict_do_update(index_elements=list(table.primary_key), set_=others, where=where)


def _insert(dialect: str, table: sql.Table) -> sqlite.Insert | postgresql.Insert:
    return postgresql.insert(table) if dialect == "postgresql" else sqlite.insert(table)
