"""Behaviour of SQLite alone: durability, detection of damage, and the first start."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sql

from moonfed.coordinator.storage.db.migration import RELEASED, Migrations
from moonfed.coordinator.storage.db.sqlite import open_store
from moonfed.errors import Corrupt, MoonfedError, Unavailable, VersionMismatch
from tests.support.later_migrations import CONTRACTED, EXPANDED, later_migrations
from tests.support.refusals import refused
from tests.support.store_records import RUN


def test_sqlite_is_durable_against_power_loss(tmp_path: Path) -> None:
    store = open_store(tmp_path / "coordinator.db")
    with store._transactions.read() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2  # FULL
    store.close()


def test_a_database_from_before_the_first_release_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "coordinator.db"
    open_store(path).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DROP TABLE alembic_version")
        before = list(connection.iterdump())
    with refused(VersionMismatch, "schema", 0):
        open_store(path)
    with closing(sqlite3.connect(path)) as connection:
        assert list(connection.iterdump()) == before


@pytest.mark.parametrize(
    ("statement", "error"),
    [("DELETE FROM runs", Corrupt), ("INSERT INTO runs SELECT * FROM runs", Unavailable), ("DROP oil", Unavailable)],
)
def test_a_migration_that_fails_or_leaves_rows_without_what_they_refer_to_is_undone(
    statement: str, error: type[MoonfedError], tmp_path: Path
) -> None:
    path = tmp_path / "coordinator.db"
    store = open_store(path)
    store.add_run(RUN)
    store.close()
    (tmp_path / f"v{EXPANDED:04}_careless.py").write_text(
        f'''"""Change the runs."""
from alembic import op

revision, down_revision = "{EXPANDED:04}", "{RELEASED.newest:04}"


def upgrade() -> None:
    op.execute("{statement}")
'''
    )
    with pytest.raises(error, match="migrat"):
        open_store(path, Migrations(*RELEASED.directories, tmp_path))
    store = open_store(path)
    assert store.runs() == [RUN]
    store.close()


def test_a_database_that_cannot_be_backed_up_is_not_migrated(tmp_path: Path) -> None:
    path = tmp_path / "coordinator.db"
    open_store(path).close()
    (tmp_path / f"coordinator.db.before-schema-{CONTRACTED}.tmp").mkdir()
    with refused(Unavailable, "database", path):
        open_store(path, later_migrations(tmp_path / "migrations"))
    open_store(path).close()


def test_a_damaged_database_is_rejected_at_start(tmp_path: Path) -> None:
    path = tmp_path / "coordinator.db"
    store = open_store(path)
    store.add_run(RUN)
    store.close()
    content = bytearray(path.read_bytes())
    content[100:] = b"\xff" * (len(content) - 100)
    path.write_bytes(content)
    with pytest.raises(Corrupt, match="restore it and its -wal file from a backup"):
        open_store(path)
    path.write_bytes(b"this is no database, it is a text that is long enough to be looked at" * 40)
    with pytest.raises(Corrupt, match="restore it"):
        open_store(path)


def test_a_database_that_cannot_be_opened_does_not_count_as_damaged(tmp_path: Path) -> None:
    directory = tmp_path / "c.db"
    directory.mkdir()
    with refused(Unavailable, "database"):
        open_store(directory)


def test_a_database_with_hidden_damage_is_rejected_at_start(tmp_path: Path) -> None:
    path = tmp_path / "coordinator.db"
    store = open_store(path)
    for number in range(200):
        store.add_run(replace(RUN, run=f"run-{number}"))
    store.close()
    content = bytearray(path.read_bytes())
    at = content.index(b"run-100")  # deep in a leaf of the table of runs
    page = at - at % 4096
    content[page : page + 4096] = b"\x05" * 4096
    path.write_bytes(content)
    with pytest.raises(Corrupt, match="restore it and its -wal file from a backup"):
        open_store(path)


def test_a_kill_after_any_statement_of_the_first_start_leaves_a_database_that_opens(tmp_path: Path) -> None:
    copies: list[Path] = []
    (tmp_path / "first").mkdir()

    def copy(*_: object) -> None:
        copies.append(tmp_path / str(len(copies)))
        shutil.copytree(tmp_path / "first", copies[-1])

    sql.event.listen(sql.Engine, "after_cursor_execute", copy)
    try:
        open_store(tmp_path / "first" / "coordinator.db").close()
    finally:
        sql.event.remove(sql.Engine, "after_cursor_execute", copy)
    assert len(copies) > 8, "there are nine statements at least: a table each, and the version"
    for directory in copies:
        store = open_store(directory / "coordinator.db")
        store.add_run(RUN)
        assert store.runs() == [RUN]
        store.close()
