"""The database of an earlier release: it is migrated as a whole, or refused with both versions.

`schema_3.sql` is the dump of a database that the release before schema version 4 wrote.
"""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sql

from moonfed.blobs import ref_of_bytes
from moonfed.coordinator.records import AttemptId
from moonfed.coordinator.rounds.retention import KEEP_ALL
from moonfed.coordinator.storage.db.sqlite import open_store
from moonfed.coordinator.storage.recovery import recovered_state
from moonfed.errors import VersionMismatch

DUMP = Path(__file__).with_name("schema_3.sql")


@pytest.fixture
def old(tmp_path: Path) -> Path:
    path = tmp_path / "coordinator.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(DUMP.read_text())
    return path


def at(round_: int, attempt: int) -> AttemptId:
    return AttemptId(run="digits", round=round_, attempt=attempt)


def columns(path: Path) -> dict[str, dict[str, tuple[object, ...]]]:
    """Of each table: its columns' types, whether they may be null, and its key."""
    engine = sql.create_engine(f"sqlite:///{path}")
    found = sql.inspect(engine)
    tables: dict[str, dict[str, tuple[object, ...]]] = {
        table: {
            **{column["name"]: (str(column["type"]), column["nullable"]) for column in found.get_columns(table)},
            "key": tuple(found.get_pk_constraint(table)["constrained_columns"]),
        }
        for table in found.get_table_names()
    }
    engine.dispose()
    return tables


def test_what_the_release_before_recorded_goes_on(old: Path) -> None:
    store = open_store(old)
    assert [run.run for run in store.runs()] == ["digits", "other"]
    run = store.run("digits")
    assert run.settings.seed == 2**64 - 1
    assert run.settings.retention == KEEP_ALL, "that release kept all models"
    assert run.settings.patience_seconds == 120
    assert [found.id for found in store.past_rounds("digits", None, 9)] == [at(1, 1), at(2, 1), at(2, 2)]
    newest = store.latest_round("digits", "committed")
    assert newest
    assert newest.blobs == {"model": ref_of_bytes(b"model 2"), "variate": ref_of_bytes(b"variate 2")}
    assert newest.metrics == {"train_loss": 0.5}
    assert store.latest_counted("digits") == {"a": at(1, 1), "b": at(2, 2), "c": at(2, 2)}
    assert store.participants("digits") == {"a", "b", "c", "d"}
    state = recovered_state(store, "digits")
    assert state.open
    assert (state.committed, set(state.open.reported)) == (2, {"d"})
    assert all(store.refers_to(ref_of_bytes(name).sha256) for name in (b"manifest", b"initial", b"model 1"))
    assert not store.refers_to(ref_of_bytes(b"other").sha256)
    assert store.registry.devices()[0].platform == {"torch": "2.6"}
    store.commit_round(at(3, 1), ["d"], {"model": ref_of_bytes(b"model 3")}, metrics={}, metrics_before={})
    assert store.latest_counted("digits")["d"] == at(3, 1)
    store.close()


def test_a_migrated_database_has_the_tables_of_a_new_one(old: Path, tmp_path: Path) -> None:
    open_store(old).close()
    open_store(tmp_path / "new.db").close()
    assert columns(old) == columns(tmp_path / "new.db")


def test_a_kill_after_any_statement_of_the_migration_leaves_a_database_that_migrates(old: Path) -> None:
    copies: list[Path] = []

    def copy(*_: object) -> None:
        copies.append(old.parent.parent / f"{old.parent.name}-{len(copies)}")
        shutil.copytree(old.parent, copies[-1])

    sql.event.listen(sql.Engine, "after_cursor_execute", copy)
    try:
        open_store(old).close()
    finally:
        sql.event.remove(sql.Engine, "after_cursor_execute", copy)
    assert len(copies) > 15, "it is not a single statement"
    for directory in copies:
        store = open_store(directory / "coordinator.db")
        assert store.latest_counted("digits") == {"a": at(1, 1), "b": at(2, 2), "c": at(2, 2)}
        store.close()


@pytest.mark.parametrize("version", [2, 99])
def test_any_other_schema_is_refused_with_both_versions(old: Path, version: int) -> None:
    with closing(sqlite3.connect(old)) as connection:
        connection.execute("UPDATE schema SET version = ?", (version,))
        connection.commit()
        before = list(connection.iterdump())
    with pytest.raises(VersionMismatch, match=f"version {version}; this release of moonfed reads version 4"):
        open_store(old)
    with closing(sqlite3.connect(old)) as connection:
        assert list(connection.iterdump()) == before
