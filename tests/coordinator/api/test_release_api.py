"""Releases created from uploaded blobs, and their deployments, without a transport."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from moonfed.blobs.store import BlobRef
from moonfed.control.releases import Release
from moonfed.coordinator.api import release_api
from moonfed.coordinator.api.release_api import ReleaseApi
from moonfed.coordinator.devices.sessions import DeviceInfo, Sessions
from moonfed.coordinator.records import ReleaseRecord
from moonfed.coordinator.storage.opening import Storage, open_storage
from moonfed.coordinator.support.tasks import BackgroundTasks
from moonfed.errors import AlreadyExists, NotFound, UntrustedRelease, WrongState
from moonfed.models.release_manifest import VARIANT_FILES
from moonfed.signing.statement import RELEASE
from moonfed.version import CONTRACT_VERSION
from tests.support.refusals import refused
from tests.support.releases import ENDED, NAME, add_devices, deployment, release_manifest
from tests.support.signatures import signature
from tests.support.store_records import RUN


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[Storage]:
    """A storage with a run that has ended, whose files are there."""
    with open_storage(tmp_path) as found:
        found.store.add_run(RUN)
        found.store.end_run(ENDED, "stopped")
        for content in (b"manifest", b"initial", b"plan"):
            found.blobs.put_bytes(content)
        yield found


@pytest.fixture
def sessions() -> Sessions:
    return Sessions()


@pytest.fixture
def api(storage: Storage, sessions: Sessions) -> ReleaseApi:
    return ReleaseApi(storage, sessions, BackgroundTasks())


def run(call: Awaitable[Any]) -> Any:
    async def awaited() -> Any:
        return await call

    return asyncio.run(awaited())


def uploaded(storage: Storage, version: int = 1, **fields: object) -> tuple[BlobRef, BlobRef]:
    """Store a release's files; return its manifest and its signature."""
    manifest = release_manifest(version, **fields)
    for variant in manifest.variants:
        for file in VARIANT_FILES:
            storage.blobs.put_bytes(f"{variant} {version} {file}".encode())
    content = manifest.to_bytes()
    signed = signature(content, name=manifest.name, version=version, kind=RELEASE).to_bytes()
    return storage.blobs.put_bytes(content), storage.blobs.put_bytes(signed)


def create(api: ReleaseApi, manifest: str, signed: str) -> Release:
    record = run(api.create(manifest, signed, "ann"))
    assert isinstance(record, Release)
    return record


def test_a_created_release_is_recorded_and_creating_it_again_changes_nothing(api: ReleaseApi, storage: Storage) -> None:
    manifest, signed = uploaded(storage)
    record = create(api, manifest.sha256, signed.sha256)
    assert (record.name, record.version, record.operator) == (release_manifest().name, 1, "ann")
    assert (record.manifest, record.signature) == (manifest, signed)
    assert run(api.create(manifest.sha256, signed.sha256, "bob")) == record
    assert run(api.releases()) == run(api.releases(NAME)) == [record]
    assert run(api.release(NAME)) == run(api.release(NAME, 1)) == record
    with refused(NotFound, "release", "letters"):
        run(api.releases("letters"))


def test_a_release_without_a_signature_that_fits_is_rejected(api: ReleaseApi, storage: Storage) -> None:
    manifest, _ = uploaded(storage)
    of_other = signature(b"another manifest", name=NAME, version=1, kind=RELEASE).to_bytes()
    with pytest.raises(UntrustedRelease, match="not signed"):
        create(api, manifest.sha256, "")
    with pytest.raises(UntrustedRelease):
        create(api, manifest.sha256, storage.blobs.put_bytes(of_other).sha256)
    with pytest.raises(UntrustedRelease):
        create(api, manifest.sha256, storage.blobs.put_bytes(b"no signature").sha256)
    with pytest.raises(NotFound):
        create(api, manifest.sha256, "0" * 64)
    assert run(api.releases()) == []


@pytest.mark.parametrize(("limit", "name"), [("MAX_BYTES", "manifest"), ("MAX_SIGNATURE_BYTES", "signature")])
def test_a_blob_that_is_too_large_is_not_read(
    api: ReleaseApi, storage: Storage, monkeypatch: pytest.MonkeyPatch, limit: str, name: str
) -> None:
    manifest, signed = uploaded(storage)
    monkeypatch.setattr(release_api, limit, 10)
    monkeypatch.setattr(storage.blobs.__class__, "read", lambda *_: pytest.fail("it was read"))
    with pytest.raises(UntrustedRelease, match=rf"the release's {name} has"):
        create(api, manifest.sha256, signed.sha256)


def test_a_release_needs_all_its_files_and_a_run_that_has_ended(api: ReleaseApi, storage: Storage) -> None:
    manifest, signed = uploaded(storage)
    model = release_manifest().variants["int8"]["model.onnx"]
    storage.blobs.delete(model.sha256)
    with refused(NotFound, "blob", model.sha256[:12]):
        create(api, manifest.sha256, signed.sha256)
    manifest, signed = uploaded(storage, run="other")
    storage.store.add_run(replace(RUN, run="other"))
    with refused(WrongState, "run", "other"):
        create(api, manifest.sha256, signed.sha256)
    assert run(api.releases()) == []


def test_garbage_collection_spares_the_files_of_a_release_that_is_being_created(
    api: ReleaseApi, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest, signed = uploaded(storage)
    blobs = [manifest, signed, *release_manifest().blobs]
    add: Callable[[Any, ReleaseRecord], None] = storage.store.releases.__class__.add

    def collect_first(self: object, record: ReleaseRecord) -> None:
        storage.garbage_collector.collect(blobs)
        add(self, record)

    monkeypatch.setattr(storage.store.releases.__class__, "add", collect_first)
    create(api, manifest.sha256, signed.sha256)
    storage.garbage_collector.collect(blobs)  # the release refers to them now
    assert all(storage.blobs.has(blob) for blob in blobs)


def test_files_of_a_release_that_failed_are_not_kept(api: ReleaseApi, storage: Storage) -> None:
    manifest, signed = uploaded(storage, version=2)
    with refused(AlreadyExists, "version", 2):
        create(api, manifest.sha256, signed.sha256)
    assert storage.garbage_collector.collect([manifest, signed]) == manifest.size + signed.size


def test_a_deployment_is_changed_and_its_devices_show_who_is_online(
    api: ReleaseApi, storage: Storage, sessions: Sessions
) -> None:
    create(api, *(blob.sha256 for blob in uploaded(storage)))
    add_devices(storage.store, 4)
    sessions.open(
        DeviceInfo(device="cam-002", contract_version=CONTRACT_VERSION, plan_interfaces=(), platform={}, runs=())
    )
    assert run(api.deploy(deployment(0, percent=50))).chosen == 2
    assert run(api.widen(NAME, 100)).chosen == 4
    assert [(found.device, found.online) for found in run(api.devices(NAME))] == [
        ("cam-000", False),
        ("cam-001", False),
        ("cam-002", True),
        ("cam-003", False),
    ]
    assert run(api.pause(NAME)).status == "paused"
    assert run(api.resume(NAME)).status == "active"
    assert run(api.roll_back(NAME, 1)).status == "rolled-back"
    assert [view.number for view in run(api.deployments())] == [1]
    with refused(WrongState, "release", "digits"):
        run(api.roll_back(NAME))
