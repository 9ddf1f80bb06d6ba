"""Online devices shared between replicas; they expire with their replica."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from moonfed.coordinator.storage import online_devices
from moonfed.coordinator.storage.online_devices import OnlineDevices
from moonfed.coordinator.storage.store import Store

Two = tuple[OnlineDevices, OnlineDevices]


@pytest.fixture
def two(replica: Callable[[], Store]) -> Two:
    first, second = replica().online_devices, replica().online_devices
    for one in (first, second):
        assert not one.heartbeat(30.0), "it has sent none before"
    return first, second


def where(seen_by: OnlineDevices) -> dict[str, str]:
    return {device: online.replica for device, online in seen_by.all().items()}


def test_a_device_is_online_at_the_replica_it_connected_to_last(two: Two) -> None:
    first, second = two
    begun = first.publish({"a": {"samples": 1}, "b": {"samples": 2}}, {})
    assert second.all()["a"].info == {"samples": 1}
    assert len(set(where(second).values())) == 1
    stamp = first.version()
    second.publish({"a": {"samples": 3}}, {})
    assert second.version() != stamp
    assert first.all()["a"].info == {"samples": 3}
    assert where(first)["a"] != where(first)["b"]
    stamp = first.version()
    first.publish({}, begun)  # both leave the first; the one that is online elsewhere stays so
    assert list(where(second)) == ["a"]
    assert first.version() != stamp


def test_heartbeats_are_read_by_the_other_replicas_only(two: Two) -> None:
    first, second = two
    first.publish({"a": {}, "b": {}}, {})
    second.publish({"c": {}}, {})
    first.record_heartbeats({"a", "c"})  # c is online elsewhere by now, and its own replica records its heartbeats
    active, newest = second.heartbeats_after(0.0)
    assert active == {"a"}
    assert second.heartbeats_after(newest) == (set(), newest)
    assert first.heartbeats_after(0.0) == (set(), 0.0)
    first.record_heartbeats({"a", "b"})
    assert second.heartbeats_after(newest)[0] == {"a", "b"}


def test_a_paused_replica_expires_and_learns_so_from_its_next_heartbeat(two: Two) -> None:
    first, second = two
    first.heartbeat(0.2)
    first.publish({"a": {}}, {})
    second.publish({"b": {}}, {})
    while list(where(second)) != ["b"]:
        time.sleep(0.05)
        assert second.heartbeat(30.0)
    assert not first.heartbeat(30.0)
    first.publish({"a": {}}, {})
    assert first.heartbeat(30.0)
    assert sorted(where(second)) == ["a", "b"]


def test_a_stopping_replica_withdraws_its_devices(two: Two) -> None:
    first, second = two
    first.publish({"a": {}}, {})
    first.withdraw()
    assert second.all() == {}


def test_the_others_read_that_a_device_has_left_until_it_returns(two: Two) -> None:
    first, second = two
    begun = first.publish({"a": {}, "b": {}}, {})
    stamp = second.version()
    first.publish({}, begun, left=["a"])
    assert second.version() != stamp
    assert {device: online.left for device, online in second.all().items()} == {"a": True}
    second.publish({"a": {}}, {})
    assert {device: online.left for device, online in first.all().items()} == {"a": False}


def test_a_device_that_has_left_is_forgotten_later(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = two
    first.publish({}, first.publish({"a": {}, "b": {}}, {}), left=["a"])
    assert second.heartbeat(30.0)
    assert "a" in second.all()
    monkeypatch.setattr(online_devices, "LEFT_SECONDS", -1.0)
    assert second.heartbeat(30.0)
    assert second.all() == {}
