"""Sentences about a run's state, for operators and devices."""

from __future__ import annotations

import pytest

from moonfed.coordinator.rounds.events import Declined, DeviceOffline, Reduced, StopRequested, UpdateRejected
from moonfed.coordinator.rounds.state import State
from moonfed.coordinator.rounds.status_text import CHECKING, rejection_reason, waiting
from tests.support.state_machine_fleet import after, devices_online
from tests.support.synchronous_run import THREE, accepted


def test_the_status_names_silent_devices() -> None:
    state, _ = after(THREE, *devices_online("a", "b", "c"), DeviceOffline(device="c"))
    told = waiting(THREE, state, silence={"a": 3.0, "b": 42.4, "c": 60.0})
    away = "c (offline, no heartbeat for 60 s)"
    assert told == f"round 1 waits for 3 of 3 devices: a, b (no heartbeat for 42 s), {away}"


def test_the_most_frequent_reasons_are_shown_and_the_others_counted() -> None:
    state, _ = after(THREE)
    problems = {f"d{number}": f"reason {number}" for number in range(5)} | {"a": "no data", "b": "no data"}
    assert waiting(THREE, state, {**problems, "c": CHECKING}) == (
        "waiting for 2 more devices: 1 online, still checking the run: c; 0 eligible so far, 3 needed; "
        "not eligible: a, b (no data); not eligible: d0 (reason 0); not eligible: d1 (reason 1); 3 more reasons"
    )


def test_a_run_that_has_enough_devices_may_wait_for_the_answers_of_others() -> None:
    state = State(online=frozenset("abcd"))
    told = waiting(THREE, state, {"e": CHECKING})
    assert told == "1 online, still checking the run: e; 4 eligible so far, 3 needed"


@pytest.mark.parametrize(
    ("online", "checking", "told"),
    [
        pytest.param(
            "", "abcde", "5 online, still checking the run: a, b, c, d, e; 0 eligible so far, 3 needed", id="all"
        ),
        pytest.param("ab", "c", "1 online, still checking the run: c; 2 eligible so far, 3 needed", id="the last"),
        pytest.param(
            "a",
            "b",
            "waiting for 1 more device: 1 online, still checking the run: b; 1 eligible so far, 3 needed",
            id="few",
        ),
        pytest.param("", "", "waiting for 3 more devices: 0 eligible, 3 needed", id="nobody"),
    ],
)
def test_a_run_that_has_just_started_says_that_devices_are_still_checking_it(
    online: str, checking: str, told: str
) -> None:
    assert waiting(THREE, State(online=frozenset(online)), dict.fromkeys(checking, CHECKING)) == told


def test_kept_updates_of_offline_devices_count_like_devices() -> None:
    state = State(attempt=2, online=frozenset("a"), reusable={"a": 1, "b": 1})
    told = "waiting for 1 more device: 1 eligible, 1 update kept from offline devices, 3 needed"
    assert waiting(THREE, state) == told


def test_a_declined_device_is_final_and_a_rejected_one_may_try_again() -> None:
    state, _ = after(THREE, *devices_online("a", "b", "c"), Declined(round=1, attempt=1, device="a"))
    assert rejection_reason(state, 1, 1, "a") == "device 'a' has declined round 1, attempt 1"
    state, _ = after(THREE, UpdateRejected(round=1, attempt=1, device="b"), state=state)
    assert rejection_reason(state, 1, 1, "b") is None


def test_stale_and_foreign_updates_are_rejected_with_the_runs_position() -> None:
    state, _ = after(THREE, *devices_online("a", "b", "c"))
    assert rejection_reason(state, 1, 1, "a") is None
    assert rejection_reason(state, 1, 1, "z") == "device 'z' is not in the cohort of round 1, attempt 1"
    assert rejection_reason(state, 2, 1, "a") == "round 2, attempt 1 is not open; the run is at round 1, attempt 1"


def test_a_run_stopped_during_a_reduction_shows_what_it_waits_for() -> None:
    state, _ = after(THREE, *devices_online("a", "b", "c"), accepted("a"), accepted("b"), accepted("c"))
    assert waiting(THREE, state) == ""
    state, _ = after(THREE, StopRequested(), state=state)
    assert (state.status, waiting(THREE, state)) == ("running", "stops when round 1 is committed")
    state, _ = after(THREE, Reduced(round=1, attempt=1), state=state)
    assert (state.status, waiting(THREE, state)) == ("stopped", "")
