"""No coordinator deletes a blob that another is about to reference, at any point of the interleaving."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sql

from moonfed.coordinator.records import AttemptId
from moonfed.coordinator.storage.blobs.pins import Pins, SharedPins
from moonfed.coordinator.storage.opening import Storage, open_storage
from tests.coordinator.storage.blobs.test_garbage_collection import BUNDLE
from tests.support.postgresql import Server
from tests.support.store_records import RUN

pytestmark = pytest.mark.slow

Two = tuple[Storage, Storage]
Until = Callable[[Callable[[], bool]], None]
CONTENT = b"a model that two runs have come to"
ATTEMPT = AttemptId(run="r", round=1, attempt=1)


@pytest.fixture
def two(tmp_path: Path, postgresql_server: Server, bucket: str) -> Iterator[Two]:
    """Two coordinators on one database and one object store; the second drives a run."""
    database = postgresql_server.new_database()
    with ExitStack() as stack:
        names = ("first", "second")
        first, second = (stack.enter_context(open_storage(tmp_path / name, database, bucket)) for name in names)
        for content in BUNDLE.contents.values():
            second.blobs.put_bytes(content)
        record = replace(RUN, run="r", manifest=BUNDLE.ref, initial=BUNDLE.manifest.files["initial.safetensors"])
        second.store.add_run(record, BUNDLE.manifest.files)
        second.store.open_round(ATTEMPT, ["a"])
        yield first, second


def test_a_blob_that_another_coordinator_is_about_to_commit_stays(two: Two) -> None:
    first, second = two
    ref = first.blobs.put_bytes(CONTENT)  # nothing refers to it: its run is just being deleted
    second.pins.add(ATTEMPT, [ref.sha256])
    second.blobs.put_bytes(CONTENT)
    assert first.garbage_collector.collect([ref]) == 0
    second.store.commit_round(ATTEMPT, ["a"], {"model": ref}, metrics={}, metrics_before={})
    second.pins.drop(ATTEMPT)
    assert first.garbage_collector.collect([ref]) == 0
    assert second.blobs.has(ref)


def test_unreferenced_blobs_are_deleted(two: Two) -> None:
    first, second = two
    ref = first.blobs.put_bytes(CONTENT)
    for owner in ("one", "other"):
        second.pins.add(owner, [ref.sha256])
    second.pins.drop("one")
    assert first.garbage_collector.collect([ref]) == 0, "the other one needs it still"
    second.pins.drop("other")
    assert first.garbage_collector.collect([ref]) == ref.size
    assert not second.blobs.has(ref)


def test_the_pins_of_a_dead_coordinator_expire(two: Two) -> None:
    first, second = two
    ref = first.blobs.put_bytes(CONTENT)
    dead = Pins(SharedPins(second.store._transactions, "dead", seconds=-1.0))
    dead.add("one", [ref.sha256])
    assert first.garbage_collector.collect([ref]) == ref.size


def test_a_digest_of_no_blob_is_ignored(two: Two) -> None:
    two[0].pins.add("one", ["", "a" * 1000, "\0"])
    two[0].pins.drop("one")


def test_pinning_a_blob_that_is_being_deleted_waits_and_puts_it_again(two: Two, until: Until) -> None:
    first, second = two
    ref = first.blobs.put_bytes(CONTENT)

    def put() -> None:
        second.pins.add(ATTEMPT, [ref.sha256])
        second.blobs.put_bytes(CONTENT)

    putting = threading.Thread(target=put)

    def waits() -> bool:
        with first.store._transactions.read() as connection:
            waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
            return bool(connection.execute(sql.text(waiting)).scalar_one())

    def delete() -> None:
        putting.start()
        until(waits)
        first.blobs.delete(ref.sha256)

    first.pins.unless_pinned(ref.sha256, delete)
    putting.join()
    assert first.blobs.has(ref), "it was put after it had gone"
