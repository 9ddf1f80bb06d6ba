"""The registry of devices and join tokens, on SQLite and on a real PostgreSQL server."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from moonfed.coordinator.storage.store import Store
from moonfed.errors import AlreadyExists


def test_a_token_is_used_up(store: Store) -> None:
    store.devices.add_token("0" * 64, 1, time.time() + 60)
    assert store.devices.enrol("cam-1", "1" * 64, "0" * 64, 5.0)
    assert not store.devices.enrol("cam-2", "2" * 64, "0" * 64, 5.0)
    assert [device.device for device in store.devices.devices()] == ["cam-1"]
    assert store.devices.enrol("cam-1", "1" * 64, "0" * 64, 6.0), "the device that used it up asks again"
    assert store.devices.devices()[0].certificate_expires == 6.0
    token = store.devices.token("0" * 64)
    assert token
    assert token.uses_left == 0
    assert store.devices.token("3" * 64) is None


def test_a_taken_name_uses_nothing_up(store: Store) -> None:
    store.devices.add_token("0" * 64, 2, time.time() + 60)
    assert store.devices.enrol("cam-1", "1" * 64, "0" * 64, 5.0)
    with pytest.raises(AlreadyExists, match="'cam-1'"):
        store.devices.enrol("cam-1", "2" * 64, "0" * 64, 5.0)
    token = store.devices.token("0" * 64)
    assert token
    assert token.uses_left == 1


def test_a_devices_record_is_updated(store: Store) -> None:
    store.devices.seen("cam-1", {"torch": "2.6"})
    store.devices.seen("cam-1")
    store.devices.renewed("cam-1", "1" * 64, 77.0)
    device = store.devices.devices()[0]
    assert (device.platform, device.certificate_expires) == ({"torch": "2.6"}, 77.0)
    assert device.last_seen >= device.enrolled > 0


def test_a_device_that_enrols_twice_at_the_same_time_uses_a_token_once(store: Store) -> None:
    """A request may be repeated while the first one is still being answered."""
    store.devices.add_token("0" * 64, 20, time.time() + 60)
    for number in range(5):
        together = Barrier(4)

        def enrol(device: str, key: str, together: Barrier = together) -> bool:
            together.wait()
            return store.devices.enrol(device, key, "0" * 64, 5.0)

        with ThreadPoolExecutor(4) as threads:
            asked = [threads.submit(enrol, f"cam-{number}", f"{number:064}") for _ in range(4)]
        assert all(enrolled.result() for enrolled in asked)
    token = store.devices.token("0" * 64)
    assert token
    assert token.uses_left == 15


def test_concurrent_enrolments_never_exceed_a_tokens_uses(store: Store) -> None:
    store.devices.add_token("0" * 64, 5, time.time() + 60)
    with ThreadPoolExecutor(8) as threads:
        asked = [threads.submit(store.devices.enrol, f"cam-{n}", f"{n:064}", "0" * 64, 5.0) for n in range(16)]
    assert sum(enrolled.result() for enrolled in asked) == 5
    assert len(store.devices.devices()) == 5
