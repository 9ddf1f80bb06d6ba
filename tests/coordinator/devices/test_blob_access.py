"""Access to blobs: the devices that may fetch each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from moonfed.blobs.store import ref_of_bytes
from moonfed.coordinator.devices import blob_access
from moonfed.coordinator.devices.blob_access import BlobAccess
from moonfed.coordinator.devices.sessions import DeviceInfo, Sessions
from moonfed.coordinator.records import AttemptId
from moonfed.coordinator.storage.opening import open_storage
from moonfed.coordinator.storage.store import Store
from moonfed.errors import NotFound
from moonfed.fleet.assignment import EligibilityCheck
from tests.support.store_records import RUN

SHARED, OWN = ref_of_bytes(b"of both runs"), ref_of_bytes(b"of the first run")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_storage(tmp_path / "state") as storage:
        storage.store.add_run(replace(RUN, run="first"), {"shared": SHARED, "own": OWN})
        storage.store.add_run(replace(RUN, run="second"), {"shared": SHARED})
        storage.store.open_round(AttemptId(run="first", round=1, attempt=1), ["cam-1"])
        storage.store.open_round(AttemptId(run="second", round=1, attempt=1), ["cam-2"])
        yield storage.store


def allowed(access: BlobAccess, device: str, sha256: str, serial: str = "") -> bool:
    try:
        access.require(device, serial, sha256)
    except NotFound:
        return False
    return True


def test_a_device_may_fetch_the_blobs_of_its_runs(store: Store) -> None:
    access = BlobAccess(store, Sessions())
    for _ in range(2):  # as read, and as remembered
        assert [allowed(access, "cam-1", blob.sha256) for blob in (SHARED, OWN)] == [True, True]
        assert [allowed(access, "cam-2", blob.sha256) for blob in (SHARED, OWN)] == [True, False]
        assert [allowed(access, "cam-3", blob.sha256) for blob in (SHARED, OWN)] == [False, False]
        assert not allowed(access, "cam-1", "0" * 64)


def test_a_device_that_joins_later_may_from_then_on(store: Store) -> None:
    access = BlobAccess(store, Sessions())
    assert not allowed(access, "cam-3", OWN.sha256)
    store.join_round(AttemptId(run="first", round=1, attempt=1), "cam-3")
    assert allowed(access, "cam-3", OWN.sha256)


def test_only_the_device_that_is_asked_to_check_a_run_may_fetch_its_manifest(store: Store) -> None:
    sessions = Sessions()
    for device in ("cam-3", "cam-4"):
        sessions.open(DeviceInfo(device=device, contract_version="2.0", plan_interfaces=(), platform={}))
    asked, access = sessions.find("cam-3"), BlobAccess(store, sessions)
    assert asked
    asked.ask(EligibilityCheck(run="first", manifest=OWN))
    assert [allowed(access, device, OWN.sha256) for device in ("cam-3", "cam-4", "cam-5")] == [True, False, False]
    asked.answered("first")
    assert not allowed(access, "cam-3", OWN.sha256)


def test_only_stored_blobs_are_remembered_and_not_all(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blob_access, "MAX_BLOBS", 1)
    access = BlobAccess(store, Sessions())
    for number in range(10):
        assert not allowed(access, "cam-1", f"{number:064x}")
    assert not access._allowed
    for blob in (SHARED, OWN, SHARED):
        assert allowed(access, "cam-1", blob.sha256)
        assert len(access._allowed) == 1


def test_access_is_remembered_by_certificate(store: Store) -> None:
    access = BlobAccess(store, Sessions())
    assert allowed(access, "cam-1", OWN.sha256, "serial 1")
    store.devices.seen("cam-1", {})
    store.devices.remove("cam-1")
    assert allowed(access, "cam-1", OWN.sha256, "serial 1"), "the certificate is rejected before"
    assert not allowed(access, "cam-1", OWN.sha256, "serial 2")
