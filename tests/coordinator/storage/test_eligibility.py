"""Devices' answers in the database: the newest of each device, gone with its run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from moonfed.coordinator.records import EligibilityReport
from moonfed.coordinator.storage.opening import open_storage
from moonfed.coordinator.storage.store import Store
from moonfed.errors import InvalidInput, NotFound
from tests.support.refusals import refused
from tests.support.store_records import RUN

Two = tuple[Store, Store]
ONE, OTHER = (
    EligibilityReport(device="cam-1", fingerprint="a"),
    EligibilityReport(device="cam-2", fingerprint="b", reason="no data"),
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_storage(tmp_path / "state") as storage:
        storage.store.add_run(RUN)
        yield storage.store


def test_the_newest_answer_of_each_device_stands(store: Store) -> None:
    assert store.eligibility.of_run(RUN.run) == {}
    store.eligibility.record(RUN.run, [OTHER, ONE])
    assert store.eligibility.of_run(RUN.run) == {"cam-1": ONE, "cam-2": OTHER}
    newer = replace(OTHER, fingerprint="c", reason="")
    store.eligibility.record(RUN.run, [newer])
    assert store.eligibility.of_run(RUN.run) == {"cam-1": ONE, "cam-2": newer}


def test_a_revoked_device_does_not_count(store: Store) -> None:
    for device in (ONE.device, OTHER.device, "cam-3"):
        store.devices.seen(device, {})
    store.eligibility.record(RUN.run, [OTHER, ONE])
    store.devices.revoke(OTHER.device)
    assert store.eligibility.of_run(RUN.run) == {"cam-1": ONE}
    assert store.devices.count() == 2


def test_answers_survive_a_restart_and_end_with_their_run(tmp_path: Path) -> None:
    with open_storage(tmp_path / "state") as storage:
        storage.store.add_run(RUN)
        storage.store.eligibility.record(RUN.run, [OTHER])
    with open_storage(tmp_path / "state") as storage:
        assert storage.store.eligibility.of_run(RUN.run) == {"cam-2": OTHER}
        storage.store.end_run(RUN.run, "stopped")
        storage.store.delete_run(RUN.run)
        assert storage.store.eligibility.of_run(RUN.run) == {}
        with refused(NotFound, "run", RUN.run):
            storage.store.eligibility.record(RUN.run, [ONE])


def test_another_coordinator_sees_the_answers_and_that_there_are_new_ones(two: Two) -> None:
    holder, follower = two
    versions = [holder.eligibility.version(RUN.run)]
    for reports in ([ONE], [OTHER], [replace(OTHER, reason="")]):
        follower.eligibility.record(RUN.run, reports)
        versions.append(holder.eligibility.version(RUN.run))
        assert holder.run_summaries.load()[RUN.run].eligibility == versions[-1]
    assert len(set(versions)) == 4
    assert set(holder.eligibility.of_run(RUN.run)) == {"cam-1", "cam-2"}
    with pytest.raises(NotFound):
        follower.eligibility.record("absent", [ONE])


def test_an_invalid_fingerprint_is_rejected() -> None:
    with pytest.raises(InvalidInput, match="fingerprint must be"):
        EligibilityReport(device="cam-1", fingerprint="f" * 65)
