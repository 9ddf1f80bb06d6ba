"""Transient errors: a full disk and an unreachable server, as SQLite and PostgreSQL report them."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
import sqlalchemy as sql

from moonfed.coordinator.storage.db.postgres import open_store
from moonfed.coordinator.storage.transient_errors import as_full_disk, as_transient, as_unreachable
from moonfed.errors import ResourceExhausted


def test_a_full_database_is_distinguished_from_other_errors(tmp_path: Path) -> None:
    engine = sql.create_engine(f"sqlite:///{tmp_path / 'full.db'}")
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE t (content TEXT)")
        connection.exec_driver_sql("PRAGMA max_page_count = 3")
        with pytest.raises(sql.exc.OperationalError) as full:
            connection.exec_driver_sql("INSERT INTO t VALUES (?)", ("x" * 100_000,))
        with pytest.raises(sql.exc.OperationalError) as other:
            connection.exec_driver_sql("SELECT * FROM nothing")
    engine.dispose()
    assert str(as_full_disk(full.value)) == "the coordinator's disk is full"
    assert as_full_disk(other.value) is None
    assert as_full_disk(OSError(errno.EDQUOT, "quota"))
    blob = ResourceExhausted("this machine's disk is full")
    blob.__cause__ = OSError(errno.ENOSPC, "No space left on device")
    assert str(as_transient(blob)) == "the coordinator's disk is full"
    budget = ResourceExhausted("the coordinator's disk budget leaves too little room")
    assert as_transient(budget) is budget
    assert as_full_disk(OSError(errno.EIO, "input/output error")) is None


def test_a_broken_connection_is_distinguished_from_other_errors_and_reopened(url: str) -> None:
    store = open_store(url, used_before=False)
    with store._transactions.read() as connection:
        ours = connection.execute(sql.select(sql.func.pg_backend_pid())).scalar_one()
        with store._transactions.write() as other:
            other.execute(sql.select(sql.func.pg_terminate_backend(ours)))
        with pytest.raises(sql.exc.OperationalError) as broken:
            connection.exec_driver_sql("SELECT 1")
    assert str(as_unreachable(broken.value)) == "the coordinator's database cannot be reached"
    assert as_full_disk(broken.value) is None
    assert store.runs() == []
    with pytest.raises(sql.exc.ProgrammingError) as other_trouble, store._transactions.read() as connection:
        connection.exec_driver_sql("SELECT * FROM nothing")
    assert as_unreachable(other_trouble.value) is None
    store.close()
