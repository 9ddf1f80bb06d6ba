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
        assert not one.beat(30.0), "it has said nothing yet"
    return first, second


def where(online_devices: OnlineDevices) -> dict[str, str]:
    return {device: place.replica for device, place in online_devices.places().items()}


def test_a_device_attends_where_it_came_last(two: Two) -> None:
    first, second = two
    begun = first.tell({"a": {"samples": 1}, "b": {"samples": 2}}, {})
    assert second.places()["a"].introduction == {"samples": 1}
    assert len(set(where(second).values())) == 1
    stamp = first.stamp()
    second.tell({"a": {"samples": 3}}, {})
    assert second.stamp() != stamp
    assert first.places()["a"].introduction == {"samples": 3}
    assert where(first)["a"] != where(first)["b"]
    stamp = first.stamp()
    first.tell({}, begun)  # both leave the first, which changes nothing of the one that is elsewhere by now
    assert list(where(second)) == ["a"]
    assert first.stamp() != stamp


def test_signs_of_progress_travel_and_do_not_return(two: Two) -> None:
    first, second = two
    first.tell({"a": {}, "b": {}}, {})
    second.tell({"c": {}}, {})
    first.sign({"a", "c"})  # c attends elsewhere by now: its own replica knows better
    signed, heard = second.signed_after(0.0)
    assert signed == {"a"}
    assert second.signed_after(heard) == (set(), heard)
    assert first.signed_after(0.0) == (set(), 0.0)
    first.sign({"a", "b"})
    assert second.signed_after(heard)[0] == {"a", "b"}


def test_what_a_dead_replica_said_is_void_and_it_hears_so_when_it_wakes(two: Two) -> None:
    first, second = two
    first.beat(0.2)
    first.tell({"a": {}}, {})
    second.tell({"b": {}}, {})
    while list(where(second)) != ["b"]:
        time.sleep(0.05)
        assert second.beat(30.0)
    assert not first.beat(30.0)
    first.tell({"a": {}}, {})
    assert first.beat(30.0)
    assert sorted(where(second)) == ["a", "b"]


def test_who_stops_leaves_nothing_behind(two: Two) -> None:
    first, second = two
    first.tell({"a": {}}, {})
    first.leave()
    assert second.places() == {}
