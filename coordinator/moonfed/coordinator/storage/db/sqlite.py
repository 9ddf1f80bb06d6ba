"""The coordinator's database in a file of its state directory: SQLite with durable settings, checked when opened."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import sqlalchemy as sql

from moonfed.coordinator.storage.db.migration import RELEASED, Migration, Migrations
from moonfed.coordinator.storage.db.schema import announcement, migrate, prepare
from moonfed.coordinator.storage.db.transactions import WRITES
from moonfed.coordinator.storage.store import Store
from moonfed.errors import Corrupt, Unavailable
from moonfed.files import sync_directory, sync_file

_log = logging.getLogger(__name__)
DATABASE_FILE = "coordinator.db"
_RESTORE = "restore it and its -wal file from a backup, or move the whole state directory away to start with a new one"


def open_store(path: Path, migrations: Migrations = RELEASED) -> Store:
    """Open the store in a file, creating or migrating it if needed. Only one process may use it at a time.

    Before it is migrated, it is copied to a file next to it. Raises Corrupt, with instructions, for a damaged database,
    Unavailable if it cannot be opened, copied or migrated, and VersionMismatch for a schema that this release cannot
    use.
    """
    engine = _engine(path, "foreign_keys=ON")
    try:
        with engine.begin() as connection:
            _check(connection, path)
            pending = prepare(connection, str(path), migrations)
        if pending:
            _migrate(path, pending)
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
    return Store(engine, schema=migrations.newest)


def _engine(path: Path, foreign_keys: str) -> sql.Engine:
    def configure(connection: Any, _record: object) -> None:  # noqa: ANN401 - a DBAPI connection
        connection.isolation_level = None  # otherwise sqlite3 starts transactions implicitly, and none for CREATE TABLE
        for pragma in ("journal_mode=WAL", "synchronous=FULL", foreign_keys, "busy_timeout=10000"):
            connection.execute(f"PRAGMA {pragma}")

    engine = sql.create_engine(f"sqlite:///{path}", connect_args={"check_same_thread": False}, hide_parameters=True)
    sql.event.listen(engine, "connect", configure)
    sql.event.listen(engine, "begin", _begin)
    return engine


def _begin(connection: sql.Connection) -> None:
    # A transaction that reads first and then writes fails at once if another connection has written in between, such as
    # that of a coordinator that is closing; one that is immediate waits for the other.
    connection.exec_driver_sql("BEGIN IMMEDIATE" if connection.get_execution_options().get(WRITES) else "BEGIN")


def _migrate(path: Path, pending: Sequence[Migration]) -> None:
    """Copy the database, then migrate it in one transaction, which a kill rolls back."""
    backup = path.with_name(f"{path.name}.before-schema-{pending[-1].number}")
    _log.info("%s; it is copied to %s first", announcement(str(path), pending), backup)
    _back_up(path, backup)
    engine = _engine(path, "foreign_keys=OFF")  # a migration that replaces a table would be refused
    try:
        with engine.execution_options(**{WRITES: True}).begin() as connection:
            migrate(connection, str(path), pending)
            if connection.exec_driver_sql("PRAGMA foreign_key_check").first():
                raise Corrupt(_instructions(path, "after its migration, which was undone, rows refer to missing ones"))
    except sql.exc.DatabaseError as error:  # a full disk, or rows that cannot be migrated
        raise Unavailable(
            f"the database {path} cannot be migrated ({error.orig}); nothing was changed", field="database", value=path
        ) from error
    finally:
        engine.dispose()


def _back_up(path: Path, target: Path) -> None:
    """Copy the database durably; a file with that name is of an earlier attempt, from before the same migration."""
    unfinished = target.with_name(f"{target.name}.tmp")
    try:
        unfinished.unlink(missing_ok=True)
        with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(unfinished)) as copy:
            source.backup(copy)
        sync_file(unfinished)
    except (OSError, sqlite3.Error) as error:
        with suppress(OSError):
            unfinished.unlink()  # a full disk needs the space
        raise Unavailable(
            f"the database {path} cannot be copied to {target} before it is migrated ({error}); nothing was changed",
            field="database",
            value=path,
        ) from error
    unfinished.replace(target)
    sync_directory(target.parent)


def _check(connection: sql.Connection, path: Path) -> None:
    problem = connection.execute(sql.text("PRAGMA quick_check(1)")).scalar_one()
    if problem != "ok":
        raise Corrupt(_instructions(path, str(problem)))


def _instructions(path: Path, problem: str) -> str:
    return f"the database {path} is damaged ({problem}): {_RESTORE}"
