"""No acknowledged update is lost between a follower that accepts it and the holder that closes its round.

Each interleaving is made on a real server: one transaction is stopped just before it commits.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sql

from moonfed.blobs.store import ref_of_bytes
from moonfed.coordinator.storage.leases import LeaseLost
from moonfed.coordinator.storage.opening import open_storage
from moonfed.coordinator.storage.store import Store
from moonfed.errors import AlreadyExists, WrongState
from tests.support.postgresql import Server
from tests.support.store_records import FIRST, report

Two = tuple[Store, Store]
MOMENT = 0.5  # in which a transaction that waits for another one would long have ended


class Paused:
    """A call in a thread that stops just before its transaction commits."""

    def __init__(self, store: Store, work: Callable[[], object]) -> None:
        self._engine, self._work = store._transactions._engine, work
        self._there, self._go = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=work)

    def __enter__(self) -> Paused:
        sql.event.listen(self._engine, "commit", self._wait)
        self._thread.start()
        assert self._there.wait(20)
        return self

    def __exit__(self, *_: object) -> None:
        self.go_on()
        sql.event.remove(self._engine, "commit", self._wait)

    def go_on(self) -> None:
        self._go.set()
        self._thread.join(20)
        assert not self._thread.is_alive()

    def _wait(self, _: sql.Connection) -> None:
        if threading.current_thread() is self._thread:
            self._there.set()
            assert self._go.wait(20)


@contextmanager
def blocked(work: Callable[[], object]) -> Iterator[list[BaseException | None]]:
    """Run work in a thread that waits for the paused process; return its result afterwards."""
    ended: list[BaseException | None] = []

    def run() -> None:
        try:
            work()
            ended.append(None)
        except BaseException as error:
            ended.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    time.sleep(MOMENT)
    assert ended == [], "it did not wait"
    yield ended
    thread.join(20)
    assert not thread.is_alive()


def test_updates_that_a_follower_accepts_before_the_round_closes_are_reduced(two: Two) -> None:
    holder, follower = two
    with Paused(follower, lambda: follower.reports.record(report("a"))) as taking:
        with blocked(lambda: holder.begin_reducing(FIRST)) as closing:
            taking.go_on()
        assert closing == [None]
    assert [found.device for found in holder.reports.of_attempt(FIRST)] == ["a"]


def test_updates_at_a_follower_after_the_round_has_closed_get_no_receipt(two: Two) -> None:
    holder, follower = two
    with Paused(holder, lambda: holder.begin_reducing(FIRST)) as closing:
        with blocked(lambda: follower.reports.record(report("a"))) as taking:
            closing.go_on()
        assert isinstance(taking[0], WrongState)
    assert holder.reports.of_attempt(FIRST) == []


def test_one_of_two_concurrent_updates_at_two_replicas_counts(two: Two) -> None:
    holder, follower = two
    with Paused(holder, lambda: holder.reports.record(report("a"))) as first:
        with blocked(lambda: follower.reports.record(report("a", b"another"))) as second:
            first.go_on()
        assert isinstance(second[0], AlreadyExists)
    assert [found.blobs for found in holder.reports.of_attempt(FIRST)] == [report("a").blobs]


def test_the_file_of_the_counted_one_of_two_updates_is_reduced(
    postgresql_server: Server, store_url: str, tmp_path: Path
) -> None:
    database, content = postgresql_server.new_database(), {"first": b"update", "second": b"another"}
    with ExitStack() as stack:
        states = [stack.enter_context(open_storage(tmp_path / name, database, store_url)) for name in content]
        for state, (name, data) in zip(states, content.items(), strict=True):
            (tmp_path / f"{name}.file").write_bytes(data)
            state.spool.put(FIRST, "a", {"model": tmp_path / f"{name}.file"})
        for state in states:  # the first one's stands, and the second one, which has its own file here, reduces
            assert state.spool.holds(FIRST, "a", "model", ref_of_bytes(content["first"]))
            assert state.spool.update_file(FIRST, "a", "model").read_bytes() == content["first"]


def test_the_same_update_at_two_replicas_at_once_counts_once(two: Two) -> None:
    holder, follower = two
    with Paused(holder, lambda: holder.reports.record(report("a"))) as first:
        with blocked(lambda: follower.reports.record(report("a"))) as second:
            first.go_on()
        assert second == [None]
    assert len(holder.reports.of_attempt(FIRST)) == 1


def test_two_devices_updates_do_not_wait_for_each_other(two: Two) -> None:
    holder, follower = two
    with Paused(holder, lambda: holder.reports.record(report("a"))):
        follower.reports.record(report("b"))
    assert len(holder.reports.of_attempt(FIRST)) == 2


def test_only_the_holder_closes_a_round(two: Two) -> None:
    _, follower = two
    with pytest.raises(LeaseLost):
        follower.begin_reducing(FIRST)
    follower.reports.record(report("a"))
