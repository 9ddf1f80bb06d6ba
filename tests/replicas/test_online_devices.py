"""Presence of devices shared between replicas, and void once its replica is dead."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from moonfed.coordinator.storage.online_devices import OnlineDevices
from moonfed.coordinator.storage.store import Store

Two = tuple[OnlineDevices, OnlineDevices]


@pytest.fixture
def two(replica: Callable[[], Store]) -> Two:
    first, second = replica().online_devices, replica().online_devices
    for one in (first, second):
        assert not one.heartbeat(30.0), "it has said nothing yet"
    return first, second


def where(online_devices: OnlineDevices) -> dict[str, str]:
    return {device: place.replica for device, place in online_devices.all().items()}


def test_a_device_attends_where_it_came_last(two: Two) -> None:
    first, second = two
    begun = first.publish({"a": {"samples": 1}, "b": {"samples": 2}}, {})
    assert second.all()["a"].introduction == {"samples": 1}
    assert len(set(where(second).values())) == 1
    stamp = first.version()
    second.publish({"a": {"samples": 3}}, {})
    assert second.version() != stamp
    assert first.all()["a"].introduction == {"samples": 3}
    assert where(first)["a"] != where(first)["b"]
    stamp = first.version()
    first.publish({}, begun)  # both leave the first, which changes nothing of the one that is elsewhere by now
    assert list(where(second)) == ["a"]
    assert first.version() != stamp


def test_signs_of_progress_travel_and_do_not_return(two: Two) -> None:
    first, second = two
    first.publish({"a": {}, "b": {}}, {})
    second.publish({"c": {}}, {})
    first.record_heartbeats({"a", "c"})  # c attends elsewhere by now: its own replica knows better
    signed, heard = second.heartbeats_after(0.0)
    assert signed == {"a"}
    assert second.heartbeats_after(heard) == (set(), heard)
    assert first.heartbeats_after(0.0) == (set(), 0.0)
    first.record_heartbeats({"a", "b"})
    assert second.heartbeats_after(heard)[0] == {"a", "b"}


def test_what_a_dead_replica_said_is_void_and_it_hears_so_when_it_wakes(two: Two) -> None:
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


def test_who_stops_leaves_nothing_behind(two: Two) -> None:
    first, second = two
    first.publish({"a": {}}, {})
    first.withdraw()
    assert second.all() == {}
