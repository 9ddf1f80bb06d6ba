"""The tables of a new database: SQLAlchemy compiles their statements for each one anew, which takes 6 ms."""

from __future__ import annotations

import functools
import sys

import sqlalchemy as sql

MODULE = "moonfed.coordinator.storage.db.tables"


def share_tables() -> None:
    """Compile the statements once from now on, if the process has imported the tables."""
    if MODULE not in sys.modules:
        return
    metadata = sys.modules[MODULE].metadata
    create_all = metadata.create_all

    @functools.cache
    def statements(url: str) -> list[str]:
        found: list[str] = []
        dialect = sql.make_url(url).get_dialect()()
        engine = sql.create_mock_engine(url, lambda each, *_, **__: found.append(str(each.compile(dialect=dialect))))
        create_all(engine, checkfirst=False)
        return found

    def create_compiled(connection: sql.Connection, *, checkfirst: bool = False) -> None:
        for statement in statements(f"{connection.dialect.name}+{connection.dialect.driver}://"):
            connection.exec_driver_sql(statement)

    metadata.create_all = create_compiled
