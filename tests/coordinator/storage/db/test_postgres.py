"""Behaviour of PostgreSQL alone: leases between coordinators, durability, and errors of an unreachable server."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest
import sqlalchemy as sql

from moonfed.coordinator.storage.db.postgres import open_store
from moonfed.coordinator.storage.leases import LeaseLost
from moonfed.coordinator.storage.store import Store
from moonfed.coordinator.storage.transient_errors import as_full_disk, as_unreachable
from moonfed.errors import Corrupt, InvalidInput, Unavailable, VersionMismatch
from tests.coordinator.storage.test_store import FIRST, MODEL, RUN, update
from tests.support.postgresql import Server

Two = tuple[Store, Store]


@pytest.fixture
def url(postgresql_server: Server) -> str:
    return postgresql_server.new_database()


@pytest.fixture
def two(url: str) -> Iterator[Two]:
    """Two coordinators on one database; the first has started a run and opened its first round."""
    with ExitStack() as stack:
        first, second = (open_store(url, used_before=False) for _ in range(2))
        stack.callback(first.close)
        stack.callback(second.close)
        first.add_run(RUN)
        first.open_round(FIRST, ["a"])
        yield first, second


def commit(store: Store) -> None:
    store.commit_round(FIRST, ["a"], {"model": MODEL}, metrics={}, metrics_before={})


def test_only_the_holder_of_a_runs_lease_changes_it(two: Two) -> None:
    first, second = two
    assert not second.leases.acquire("digits")
    forbidden: list[Callable[[], object]] = [
        lambda: commit(second),
        lambda: second.abandon_round(FIRST, "because"),
        lambda: second.open_round(replace(FIRST, round=2), ["a"]),
        lambda: second.end_run("digits", "stopped"),
        lambda: second.reports.replace(update("a")),
    ]
    for change in forbidden:
        with pytest.raises(LeaseLost, match="run 'digits' is another coordinator's now"):
            change()
    assert second.run("digits").status == "running", "it is served all the same"
    commit(first)
    assert (first.leases.held(), second.leases.held()) == ({"digits"}, set())


def test_a_lease_that_ran_out_is_taken_over_and_its_old_holder_cannot_commit(two: Two) -> None:
    first, second = two
    assert first.leases.acquire("digits", 0.2)
    while not second.leases.acquire("digits"):
        time.sleep(0.05)
    with pytest.raises(LeaseLost):
        commit(first)
    assert not first.leases.acquire("digits")
    commit(second)


def test_a_lease_that_ran_out_commits_nothing_even_if_nobody_took_it(two: Two) -> None:
    first, _ = two
    assert first.leases.acquire("digits", 0.0)
    with pytest.raises(LeaseLost):
        commit(first)
    assert first.leases.acquire("digits")
    commit(first)


def test_a_lease_cannot_be_taken_in_the_middle_of_its_holders_commit(two: Two) -> None:
    first, second = two
    assert first.leases.acquire("digits", 3.0)
    taken: list[float] = []

    def take() -> None:
        while not second.leases.acquire("digits"):
            time.sleep(0.02)
        taken.append(time.monotonic())

    with first._transactions.write() as connection:
        first.leases.require(connection, "digits")
        thread = threading.Thread(target=take)
        thread.start()
        time.sleep(3.5)  # the lease is over by now
        committing = time.monotonic()
        assert not taken
    thread.join(20)
    assert taken[0] >= committing


def test_released_leases_are_free_at_once(two: Two) -> None:
    first, second = two
    first.leases.release()
    assert second.leases.acquire("digits")


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
    with pytest.raises(Corrupt, match="has none of moonfed's tables, though the state directory was in use"):
        open_store(url, used_before=True)
    open_store(url, used_before=False).close()
    open_store(url, used_before=True).close()


def test_another_schema_is_rejected_with_both_versions(url: str) -> None:
    store = open_store(url, used_before=False)
    with store._transactions.write() as connection:
        connection.exec_driver_sql("UPDATE schema SET version = 99")
    store.close()
    with pytest.raises(VersionMismatch, match="version 99; this release of moonfed reads version 6"):
        open_store(url, used_before=True)


def test_a_server_that_cannot_be_reached_is_one_sentence_without_the_password() -> None:
    with pytest.raises(Unavailable) as away:
        open_store("postgresql://me:secret@127.0.0.1:1/moonfed", used_before=False)
    told = str(away.value)
    assert told.startswith("the database postgresql://me:***@127.0.0.1:1/moonfed cannot be used: ")
    assert "refused" in told, "why"
    assert "secret" not in told
    assert "\n" not in told


@pytest.mark.parametrize(
    "url", ["mysql://me:secret@there/moonfed", "there:secret", "postgresql+psycopg2://a:secret@b/c"]
)
def test_another_url_is_rejected_without_the_password(url: str) -> None:
    with pytest.raises(InvalidInput, match="it must be like postgresql://USER@HOST/NAME") as rejected:
        open_store(url, used_before=False)
    assert "secret" not in str(rejected.value)


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


def test_leases_are_inherited_once_and_the_previous_holder_cannot_commit(two: Two) -> None:
    first, second = two
    second.inherit("somebody else")
    assert not second.leases.held()
    second.inherit(first.leases.holder or "")
    assert (first.leases.held(), second.leases.held()) == (set(), {"digits"})
    with pytest.raises(LeaseLost):
        commit(first)
    commit(second)
