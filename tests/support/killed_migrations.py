"""Migrate copies of a database, each in a process that is killed at another statement; print the copies as JSON.

Arguments: sqlite or postgresql, the database, and a directory for the copies. The last one's process is not killed.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from itertools import count
from pathlib import Path

import alembic.operations
import alembic.runtime.migration
import alembic.script
import sqlalchemy as sql

from moonfed.coordinator.storage.db import postgres, sqlite
from tests.support.later_migrations import later_migrations


def copy_sqlite(source: str, directory: Path, number: int) -> str:
    target = directory / str(number)
    target.mkdir()
    shutil.copy(source, target / "coordinator.db")
    return str(target / "coordinator.db")


def copy_postgresql(source: str, number: int) -> str:
    url = sql.make_url(source)
    engine = sql.create_engine(url.set(drivername="postgresql+psycopg", database="postgres"))
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {url.database}_{number} TEMPLATE {url.database}")
    engine.dispose()
    return url.set(database=f"{url.database}_{number}").render_as_string(hide_password=False)


def migrate(kind: str, copy: str, directory: Path, kill_at: int) -> None:
    """Migrate in this process, and kill it before the statement with this number."""
    numbers = count()
    assert alembic.script, "imported before the processes are forked"

    def kill(*_: object) -> None:
        if next(numbers) == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    sql.event.listen(sql.Engine, "before_cursor_execute", kill)
    sql.event.listen(sql.Engine, "commit", kill)
    migrations = later_migrations(directory / "migrations")
    if kind == "sqlite":
        sqlite.open_store(Path(copy), migrations).close()
    else:
        postgres.open_store(copy, used_before=True, backed_up=True, migrations=migrations).close()


def main(kind: str, source: str, directory: Path) -> None:
    copies = []
    for number in count():
        copy = copy_sqlite(source, directory, number) if kind == "sqlite" else copy_postgresql(source, number)
        copies.append(copy)
        process = os.fork()
        if process == 0:
            migrate(kind, copy, directory, number)
            os._exit(0)
        status = os.waitpid(process, 0)[1]
        if not os.WIFSIGNALED(status):
            assert status == 0, copies
            break
    print(json.dumps(copies))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
