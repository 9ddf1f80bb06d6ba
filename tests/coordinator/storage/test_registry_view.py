"""The view of the registries that replicas keep in memory, on SQLite and on a real PostgreSQL server."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from moonfed.coordinator.storage.certificates import Rejection
from moonfed.coordinator.storage.device_registry import DeviceRegistry
from moonfed.coordinator.storage.store import Store
from tests.support.device_certificates import enrolled, issued, token_record


def test_the_view_of_an_empty_registry_is_empty(store: Store) -> None:
    view = store.registry.load()
    assert view.version == store.registry.version()
    assert (view.devices, view.labels) == ({}, {})
    assert view.known == view.revoked == view.operators == frozenset()


def test_the_view_has_what_operators_did_to_devices(store: Store) -> None:
    registry = store.devices
    revoked = enrolled(registry, "cam-1")
    removed, renamed = enrolled(registry, "cam-2"), enrolled(registry, "cam-3")
    enrolled(registry, "cam-4")
    registry.revoke("cam-1")
    registry.remove("cam-2")
    registry.rename("cam-3", "gate")
    registry.label("cam-4", {"site": "ulm"})
    view = store.registry.load()
    assert view.devices == {
        revoked.serial: Rejection(reason="revoked", device="cam-1"),
        removed.serial: Rejection(reason="removed", device="cam-2"),
        renamed.serial: Rejection(reason="renamed", device="gate"),
    }
    assert view.known == {"cam-1", "gate", "cam-4"}
    assert view.revoked == {"cam-1"}
    assert view.labels == {"cam-4": {"site": "ulm"}}


def test_a_device_that_returns_after_its_revocation_is_not_revoked(store: Store) -> None:
    old = enrolled(store.devices, "cam-1")
    store.devices.revoke("cam-1")
    before = store.registry.version()
    store.devices.add_token("own", token_record(device="cam-1"))
    assert store.devices.enrol("cam-1", issued("another key"), "own")
    view = store.registry.load()
    assert view.version > before
    assert view.revoked == frozenset()
    assert set(view.devices) == {old.serial}


@pytest.mark.parametrize(
    "change",
    [
        lambda registry: registry.revoke("cam-1"),
        lambda registry: registry.remove("cam-1"),
        lambda registry: registry.rename("cam-1", "gate"),
        lambda registry: registry.label("cam-1", {"site": "ulm"}),
    ],
    ids=["revoke", "remove", "rename", "label"],
)
def test_every_change_increases_the_version(store: Store, change: Callable[[DeviceRegistry], object]) -> None:
    enrolled(store.devices, "cam-1")
    before = store.registry.version()
    change(store.devices)
    assert store.registry.version() > before
