"""Behaviour of PostgreSQL alone: leases between coordinators, durability, and errors of an unreachable server."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sql

from moonfed.coordinator.storage.db import postgres, tables
from moonfed.coordinator.storage.db.migration import RELEASED, Migrations
from moonfed.coordinator.storage.db.postgres import open_store
from moonfed.errors import Corrupt, InvalidInput, Unavailable
from tests.support.later_migrations import EXPANDED, later_migrations
from tests.support.postgresql import Server
from tests.support.refusals import refused


def test_two_concurrent_starts_create_one_schema(postgresql_server: Server) -> None:
    url, stores = postgresql_server.new_database(), []
    threads = [threading.Thread(target=lambda: stores.append(open_store(url, used_before=False))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(stores) == 4
    for store in stores:
        assert store.runs() == []
        store.close()


def test_its_commits_are_durable_whatever_the_servers_default(url: str) -> None:
    first = open_store(url, used_before=False)
    with first._transactions.write() as connection:
        name = connection.execute(sql.select(sql.func.current_database())).scalar_one()
        connection.exec_driver_sql(f"ALTER DATABASE {name} SET synchronous_commit = off")
    first.close()
    second = open_store(url, used_before=True)
    with second._transactions.read() as connection:
        assert connection.exec_driver_sql("SHOW synchronous_commit").scalar() == "on"
        assert connection.exec_driver_sql("SHOW transaction_isolation").scalar() == "repeatable read"
    second.close()


def test_missing_tables_are_not_recreated(url: str) -> None:
    with refused(Corrupt, "tables"):
        open_store(url, used_before=True)
    open_store(url, used_before=False).close()
    open_store(url, used_before=True).close()


def test_a_migration_does_not_wait_long_for_other_transactions(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "_LOCK_SECONDS", 1)
    store = open_store(url, used_before=False)
    later = later_migrations(tmp_path)
    with store._transactions.read() as reading:
        reading.execute(sql.select(tables.runs)).all()
        with pytest.raises(Unavailable, match="lock timeout"):
            open_store(url, used_before=True, backed_up=True, migrations=later)
    open_store(url, used_before=True, backed_up=True, migrations=later).close()
    store.close()


def test_a_migration_that_fails_is_an_error_in_one_sentence(url: str, tmp_path: Path) -> None:
    open_store(url, used_before=False).close()
    (tmp_path / f"v{EXPANDED:04}_fail.py").write_text(
        f'''"""Divide by zero."""
from alembic import op

revision, down_revision = "{EXPANDED:04}", "{RELEASED.newest:04}"


def upgrade() -> None:
    op.execute("SELECT 1 / 0")
'''
    )
    later = Migrations(*RELEASED.directories, tmp_path)
    with pytest.raises(Unavailable, match=r"division by zero$"):
        open_store(url, used_before=True, backed_up=True, migrations=later)
    open_store(url, used_before=True).close()


def test_tables_that_cannot_be_created_are_an_error_in_one_sentence(url: str) -> None:
    store = open_store(url, used_before=False)
    with store._transactions.write() as connection:
        for statement in ("DROP SCHEMA public CASCADE", "CREATE SCHEMA public", "CREATE TABLE runs (elsewhere text)"):
            connection.exec_driver_sql(statement)
    with pytest.raises(Unavailable, match=r'cannot be used: relation "runs" already exists$'):
        open_store(url, used_before=False)
    with store._transactions.write() as connection:
        for statement in ("DROP TABLE runs", "CREATE ROLE reader LOGIN", "GRANT USAGE ON SCHEMA public TO reader"):
            connection.exec_driver_sql(statement)
    store.close()
    with pytest.raises(Unavailable, match=r"cannot be used: permission denied for schema public$"):
        open_store(url.replace("postgres@", "reader@"), used_before=False)


@contextmanager
def asking_for_a_password(given: list[bytes]) -> Iterator[str]:
    """A server at this URL that speaks PostgreSQL's protocol, requests a plain-text password and rejects each."""

    def serve(listener: socket.socket) -> None:
        with listener.accept()[0] as connection, connection.makefile("rb") as stream:
            stream.read(struct.unpack("!I", stream.read(4))[0] - 4)  # the user and the database
            connection.sendall(b"R" + struct.pack("!II", 8, 3))
            assert stream.read(1) == b"p"
            given.append(stream.read(struct.unpack("!I", stream.read(4))[0] - 4).rstrip(b"\0"))
            fields = b"SFATAL\0C28P01\0Mthat is not the password\0\0"
            connection.sendall(b"E" + struct.pack("!I", 4 + len(fields)) + fields)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        port = listener.getsockname()[1]
        yield f"postgresql://me@127.0.0.1:{port}/moonfed?sslmode=disable&gssencmode=disable"
        thread.join(20)


def test_the_password_can_be_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("psycopg")
    (tmp_path / "password").write_text("correct horse\n")
    monkeypatch.setenv("PGPASSWORD_FILE", str(tmp_path / "password"))
    given: list[bytes] = []
    with asking_for_a_password(given) as url, pytest.raises(Unavailable, match="that is not the password") as failed:
        open_store(url, used_before=False)
    assert given == [b"correct horse"]
    assert "horse" not in str(failed.value)


@pytest.mark.parametrize("content", [None, b"", b"\n", b"\xff", b"x" * 5000])
def test_a_file_without_a_password_is_rejected(
    content: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("psycopg")
    if content is not None:
        (tmp_path / "password").write_bytes(content)
    monkeypatch.setenv("PGPASSWORD_FILE", str(tmp_path / "password"))
    with refused(InvalidInput, "PGPASSWORD_FILE"):
        open_store("postgresql://me@127.0.0.1:1/moonfed", used_before=False)


def test_a_server_that_cannot_be_reached_is_one_sentence_without_the_password() -> None:
    with pytest.raises(Unavailable) as away:
        open_store("postgresql://me:secret@127.0.0.1:1/moonfed", used_before=False)
    message = str(away.value)
    assert message.startswith("the database postgresql://me:***@127.0.0.1:1/moonfed cannot be used: ")
    assert "refused" in message, "why"
    assert "secret" not in message
    assert "\n" not in message


@pytest.mark.parametrize(
    "url", ["mysql://me:secret@there/moonfed", "there:secret", "postgresql+psycopg2://a:secret@b/c"]
)
def test_another_url_is_rejected_without_the_password(url: str) -> None:
    with refused(InvalidInput, "database") as rejected:
        open_store(url, used_before=False)
    assert "secret" not in str(rejected.value)
