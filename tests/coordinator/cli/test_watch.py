"""The lines and the bar of a watched run, from its events."""

from __future__ import annotations

from typing import Any

import pytest

from moonfed.control.events import RunEvent
from moonfed.control.kinds import Amount
from moonfed.control.run_settings import RunSettings
from moonfed.control.runs import OpenRound, Run
from moonfed.coordinator.cli.watch import WatchedRun
from tests.support.clock import Clock
from tests.support.operator_records import event
from tests.support.operator_records import run_of as any_run

NAMES = tuple(f"cam-{number:04}" for number in range(1000))


def in_round(kind: str, **fields: Any) -> RunEvent:
    return event(kind, round=3, attempt=1, **fields)


def run_of(**fields: Any) -> Run:
    settings = RunSettings(rounds=50, cohort=Amount(count=200), over_selection=0.1)
    return any_run(settings, **{"run": "digits", "method": "moon", "round": 2, **fields})


@pytest.fixture
def clock() -> Clock:
    return Clock(1000.0)


@pytest.fixture
def watched(clock: Clock) -> WatchedRun:
    """A run of which 220 devices were selected for a round of 200."""
    found = WatchedRun(clock)
    assert found.apply(event("snapshot", run=run_of())) == ["run digits (moon): running, 2 of 50 rounds"]
    assert found.apply(in_round("round_opened", cohort=NAMES[:220])) == []
    return found


def test_a_committed_round_is_one_line(watched: WatchedRun, clock: Clock) -> None:
    for device in NAMES[:200]:
        assert watched.apply(in_round("progress", device=device, fraction=0.5)) == []
        assert watched.apply(in_round("update_received", device=device)) == []
    for kind, device in (
        ("device_lost", NAMES[200]),
        ("device_lost", NAMES[201]),
        ("device_declined", NAMES[202]),
        ("update_rejected", NAMES[203]),
        ("device_left", NAMES[204]),
    ):
        assert watched.apply(in_round(kind, device=device, reason="because")) == []
    clock.now += 12.3
    committed = in_round("round_committed", counted=NAMES[:200], metrics={"train_loss": 0.25}, incidents="incidents: x")
    assert watched.apply(committed) == [
        "round 3 of 50: 200 of 200 updates in 12 s, train_loss 0.2500; "
        "1 rejected, 1 declined, 2 lost, 1 left, incidents: x"
    ]
    assert watched.apply(event("metrics_recorded", round=3, metrics={"train_loss": 0.25})) == [], "the line has them"
    assert watched.apply(event("metrics_recorded", round=3, metrics={"accuracy": 0.9})) == [
        "round 3 scored: accuracy 0.9000"
    ]
    assert watched.status_lines(80) == []


def test_a_lost_device_that_returns_is_not_lost(watched: WatchedRun) -> None:
    watched.apply(in_round("device_lost", device=NAMES[0]))
    watched.apply(in_round("progress", device=NAMES[0], fraction=0.1))
    watched.apply(in_round("device_lost", device=NAMES[1]))
    watched.apply(in_round("update_received", device=NAMES[1]))
    line = watched.apply(in_round("round_committed", counted=NAMES[:200]))
    assert line == ["round 3 of 50: 200 of 200 updates in 0 s"]


def test_the_bar_has_the_updates_the_time_left_and_the_slowest_devices(watched: WatchedRun, clock: Clock) -> None:
    clock.now += 60.0
    for device in NAMES[:151]:
        watched.apply(in_round("update_received", device=device))
    for number, device in enumerate(NAMES[151:220]):
        watched.apply(in_round("progress", device=device, fraction=0.2 + number / 100))
    bar, slowest = watched.status_lines(80)
    # The 49 fastest of the other 69 devices have reported at least 40 %, in 60 s.
    assert bar == f"round 3 of 50 {'━' * 26}{'─' * 9} 151 of 200 updates, 2 min left"
    assert slowest == "slowest: cam-0151 20%, cam-0152 21%, cam-0153 22%, cam-0154 23%, cam-0155 24%"
    assert all(len(line) <= 40 for line in watched.status_lines(40))


def test_the_time_left_follows_the_updates_if_too_few_devices_report_progress(
    watched: WatchedRun, clock: Clock
) -> None:
    assert "left" not in watched.status_lines(80)[0], "nothing is known yet"
    clock.now += 30.0
    for device in NAMES[:150]:
        watched.apply(in_round("update_received", device=device))
    assert watched.status_lines(80)[0].endswith("150 of 200 updates, 10 s left")


def test_an_abandoned_attempt_is_one_line_and_the_next_one_names_its_number(watched: WatchedRun) -> None:
    assert watched.apply(in_round("round_abandoned", reason="too few")) == ["round 3 of 50 abandoned: too few"]
    assert watched.status_lines(80) == []
    watched.apply(event("round_opened", round=3, attempt=2, cohort=NAMES[:220]))
    assert watched.status_lines(80)[0].startswith("round 3 of 50, attempt 2 ─")
    line = watched.apply(event("round_committed", round=3, attempt=2, counted=NAMES[:1]))
    assert line == ["round 3 of 50, attempt 2: 1 of 200 updates in 0 s"]


def test_updates_that_an_attempt_reuses_are_delivered_when_it_opens(watched: WatchedRun, clock: Clock) -> None:
    watched.apply(in_round("round_abandoned", reason="too few"))
    watched.apply(event("round_opened", round=3, attempt=2, cohort=NAMES[:220], reused=NAMES[:151]))
    assert watched.status_lines(80)[0].endswith(" 151 of 200 updates"), "nothing is known yet of the others' pace"
    assert watched.status_lines(80)[1].startswith("slowest: cam-0151 0%")
    clock.now += 30.0
    for device in NAMES[151:161]:
        watched.apply(event("update_received", round=3, attempt=2, device=device))
    assert watched.status_lines(80)[0].endswith("161 of 200 updates, 2 min left")


def test_replacements_join_the_round_and_do_not_raise_its_target(watched: WatchedRun) -> None:
    watched.apply(in_round("device_lost", device=NAMES[0]))
    watched.apply(in_round("devices_joined", devices=[NAMES[999]]))
    assert watched.open
    assert (NAMES[999] in watched.open.pending, watched.open.target) == (True, 200)


def test_what_a_run_waits_for_is_printed_at_most_once_a_minute(clock: Clock) -> None:
    watched = WatchedRun(clock)
    watched.apply(event("snapshot", run=run_of()))
    printed = []
    for number in range(1000, 0, -1):  # each device that connects changes it
        clock.now += 0.125
        printed += watched.apply(event("waiting", reason=f"waiting for {number} more devices"))
    assert printed == ["waiting for 1000 more devices", "waiting for 520 more devices", "waiting for 40 more devices"]
    assert watched.status_lines(80) == ["waiting for 1 more devices"]


def test_a_watch_that_begins_in_a_round_knows_what_happened_before(clock: Clock) -> None:
    current = OpenRound(
        round=3,
        attempt=1,
        seconds=60.0,
        target=200,
        cohort=NAMES[:220],
        reported=NAMES[:151],
        lost=NAMES[151:153],
        progress=dict.fromkeys(NAMES[153:220], 0.5),
    )
    watched, run = WatchedRun(clock), run_of(open_round=current)
    watched.apply(event("snapshot", run=run))
    bar, slowest = watched.status_lines(80)
    assert bar.endswith("151 of 200 updates, 60 s left")
    assert slowest.startswith("slowest: cam-0153 50%, ")
    clock.now += 5
    line = watched.apply(in_round("round_committed", counted=NAMES[:200]))
    assert line == ["round 3 of 50: 200 of 200 updates in 65 s; 2 lost"]


def test_a_run_that_has_ended_is_one_line() -> None:
    watched = WatchedRun(Clock(0.0))
    ended = run_of(status="finished", round=50)
    lines = [*watched.apply(event("snapshot", run=ended)), *watched.apply(event("ended", run=ended))]
    assert lines == ["run digits (moon): finished, 50 of 50 rounds"]


def test_what_a_run_waits_for_at_first_is_wrapped_and_why_it_ended_is_whole(clock: Clock) -> None:
    why = "waiting for 3 more devices: 0 eligible, 3 needed; not eligible: " + ", ".join(NAMES[:8])
    assert WatchedRun(clock, 59).apply(event("snapshot", run=run_of(waiting=why))) == [
        "run digits (moon): running, 2 of 50 rounds",
        "waiting for 3 more devices: 0 eligible, 3 needed; not",
        "  eligible: cam-0000, cam-0001, cam-0002, cam-0003,",
        "  cam-0004, cam-0005, cam-0006, cam-0007",
    ]
    assert WatchedRun(clock).apply(event("snapshot", run=run_of(waiting=why)))[1] == why
    failed = run_of(status="failed", reason=why)
    (line,) = WatchedRun(clock, 59).apply(event("snapshot", run=failed))
    assert line.endswith(why)


def test_the_end_of_a_run_and_what_operators_do_to_it_are_lines(watched: WatchedRun) -> None:
    assert watched.apply(event("paused")) == ["run digits: paused"]
    assert watched.apply(event("resumed")) == ["run digits: resumed"]
    ended = run_of(status="stopped")
    assert watched.apply(event("ended", run=ended)) == ["run digits (moon): stopped, 2 of 50 rounds"]
    assert watched.run == ended


def test_a_snapshot_after_a_lost_connection_adds_no_line(watched: WatchedRun) -> None:
    assert watched.apply(event("snapshot", run=run_of(round=3))) == []
    assert watched.status_lines(80) == []
