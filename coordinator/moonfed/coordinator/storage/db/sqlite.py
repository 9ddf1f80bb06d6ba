"""The coordinator's database in a file of its state directory: SQLite with durable settings, checked when opened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import sqlalchemy as sql

from moonfed.coordinator.storage.db.schema import prepare
from moonfed.coordinator.storage.db.transactions import WRITES
from moonfed.coordinator.storage.store import Store
from moonfed.errors import Corrupt, Unavailable

DATABASE_FILE = "coordinator.db"
_RESTORE = "restore it and its -wal file from a backup, or move the whole state directory away to start with a new one"


def open_store(path: Path) -> Store:
    """Open the store in a file, creating it if needed. Only one process may use it at a time.

    Raises Corrupt, with instructions, for a damaged database, Unavailable if it cannot be opened, and VersionMismatch
    for another release's schema.
    """
    engine = sql.create_engine(f"sqlite:///{path}", connect_args={"check_same_thread": False}, hide_parameters=True)
    sql.event.listen(engine, "connect", _configure)
    sql.event.listen(engine, "begin", _begin)
    try:
        with engine.begin() as connection:
            _check(connection, path)
            prepare(connection, str(path))
    except sql.exc.OperationalError as error:
        engine.dispose()
        raise Unavailable(
            f"the database {path} cannot be opened ({error.orig}): check its permissions, its disk, and that no other "
            f"program uses it; if it is damaged, {_RESTORE}",
            field="database",
            value=path,
        ) from error
    except sql.exc.DatabaseError as error:
        engine.dispose()
        raise Corrupt(_instructions(path, str(error.orig))) from error
    except BaseException:
        engine.dispose()
        raise
    return Store(engine)


def _configure(connection: Any, _record: object) -> None:  # noqa: ANN401 - a DBAPI connection
    connection.isolation_level = None  # otherwise sqlite3 starts transactions implicitly, and none for CREATE TABLE
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "busy_timeout=10000"):
        connection.execute(f"PRAGMA {pragma}")


def _begin(connection: sql.Connection) -> None:
    # A transaction that reads first and then writes fails at once if another connection has written in between, such as
    # that of a coordinator that is closing; one that is immediate waits for the other.
    connection.exec_driver_sql("BEGIN IMMEDIATE" if connection.get_execution_options().get(WRITES) else "BEGIN")


def _check(connection: sql.Connection, path: Path) -> None:
    problem = connection.execute(sql.text("PRAGMA quick_check(1)")).scalar_one()
    if problem != "ok":
        raise Corrupt(_instructions(path, str(problem)))


def _instructions(path: Path, problem: str) -> str:
    return f"the database {path} is damaged ({problem}): {_RESTORE}"
