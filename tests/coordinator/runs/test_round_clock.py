"""The moments of an attempt and the training times of its devices."""

from __future__ import annotations

from moonfed.coordinator.rounds.phases import Moments
from moonfed.coordinator.runs.round_clock import RoundClock
from tests.support.clock import Clock

FIRST, SECOND = (1, 1), (1, 2)


def clock_at(now: float) -> tuple[Clock, RoundClock]:
    time = Clock(now)
    return time, RoundClock(time)


def test_the_last_counted_update_ends_training_and_upload() -> None:
    time, clock = clock_at(100.0)
    clock.open(FIRST)
    for device in "abc":
        clock.assigned(device, FIRST)
    for now, device in ((110.0, "a"), (112.0, "b"), (113.0, "c")):
        time.now = now
        clock.upload_began(device, FIRST)
    for now, device in ((120.0, "b"), (121.0, "a")):  # and not "c"
        time.now = now
        clock.upload_began(device, FIRST)  # it resumes
        clock.counted(device, FIRST)
    time.now = 130.0
    clock.close()
    time.now = 140.0
    clock.close()  # it is reduced once more
    assert clock.moments(FIRST) == Moments(
        opened=100.0, last_upload=112.0, last_receipt=121.0, closed=130.0, ended=140.0
    )
    assert clock.training("abc") == {"a": 10.0, "b": 12.0}
    clock.forget("a")
    assert clock.training("abc") == {"b": 12.0}


def test_an_update_of_an_abandoned_attempt_keeps_its_time() -> None:
    time, clock = clock_at(0.0)
    clock.open(FIRST)
    clock.assigned("a", FIRST)
    time.now = 5.0
    clock.upload_began("a", FIRST)
    clock.counted("a", FIRST)
    clock.open(SECOND)
    assert clock.moments(FIRST) is None
    assert clock.moments(SECOND) == Moments(opened=5.0, ended=5.0)
    assert clock.training("a") == {"a": 5.0}


def test_a_device_that_connects_again_has_its_first_assignment() -> None:
    time, clock = clock_at(0.0)
    clock.open(FIRST)
    clock.assigned("a", FIRST)
    time.now = 3.0
    clock.assigned("a", FIRST)
    time.now = 4.0
    clock.upload_began("a", FIRST)
    clock.counted("a", FIRST)
    assert clock.training("a") == {"a": 4.0}


def test_after_a_restart_training_times_are_unknown() -> None:
    time, clock = clock_at(50.0)
    clock.open(FIRST, 20.0, resumed=True)
    clock.assigned("a", FIRST)
    time.now = 60.0
    clock.upload_began("a", FIRST)
    clock.counted("a", FIRST)
    assert clock.moments(FIRST) == Moments(opened=30.0, last_upload=60.0, last_receipt=60.0, ended=60.0)
    assert clock.training("a") == {}


def test_an_update_that_another_coordinator_received_begins_when_it_is_known() -> None:
    time, clock = clock_at(0.0)
    clock.open(FIRST)
    clock.assigned("a", FIRST)
    time.now = 7.0
    clock.counted("a", FIRST)
    assert clock.moments(FIRST) == Moments(opened=0.0, last_upload=7.0, last_receipt=7.0, ended=7.0)
    assert clock.training("a") == {}
