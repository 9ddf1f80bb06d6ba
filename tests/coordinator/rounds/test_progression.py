"""Replacement of devices, reuse of updates, failing and pausing of a run, by examples."""

from __future__ import annotations

from dataclasses import replace

import pytest

from moonfed.control.kinds import Amount
from moonfed.control.run_settings import RunSettings
from moonfed.coordinator.rounds.cohort import draw_order
from moonfed.coordinator.rounds.events import (
    STOPPED,
    Abandon,
    Assign,
    DeadlinePassed,
    Declined,
    DeviceLeft,
    DeviceOffline,
    DeviceOnline,
    End,
    Event,
    Lose,
    Open,
    PauseRequested,
    Progressed,
    Reduce,
    Reduced,
    ReductionFailed,
    Replace,
    Resumed,
    ResumeRequested,
    RetryDue,
    SetPaused,
    Stalled,
    StartTimer,
    StopRequested,
    UpdateRejected,
    WaitTimedOut,
)
from moonfed.coordinator.rounds.protocol import SYNCHRONOUS
from moonfed.coordinator.rounds.state import State
from moonfed.coordinator.rounds.status_text import rejection_reason, waiting
from tests.support.state_machine_fleet import DRAW, after, devices_online, only
from tests.support.synchronous_run import THREE, accepted


def stalled(name: str) -> Event:
    return Stalled(round=1, attempt=1, device=name)


TWO_OF_FOUR = RunSettings(
    rounds=1, cohort=Amount(count=2), minimum_devices=4, quorum=Amount(fraction=1.0), max_attempts=3
)


def opened() -> tuple[State, tuple[str, ...], tuple[str, ...]]:
    """Open a round of two of four devices; also return its cohort and the others, in the order of the draw."""
    state, _ = after(TWO_OF_FOUR, Resumed(online=dict.fromkeys("abcd", 0)))
    assert state.open
    cohort = state.open.cohort
    order = draw_order(TWO_OF_FOUR, DRAW, 1, 1, set("abcd") - set(cohort), {})
    return state, cohort, tuple(order)


@pytest.mark.parametrize("kind", [UpdateRejected, Declined, Stalled])
def test_a_lost_declining_or_rejected_device_is_replaced_by_the_next_one_of_the_draw(
    kind: type[UpdateRejected | Declined | Stalled],
) -> None:
    state, (one, other), idle = opened()
    state, commands = after(TWO_OF_FOUR, kind(round=1, attempt=1, device=one), state=state)
    assert [command for command in commands if not isinstance(command, Lose)] == [
        Replace(round=1, attempt=1, devices=(idle[0],)),
        Assign(round=1, attempt=1, device=idle[0]),
    ]
    _, commands = after(TWO_OF_FOUR, accepted(idle[0]), accepted(other), state=state)
    assert commands == [Reduce(round=1, attempt=1, devices=tuple(sorted((idle[0], other))))]


def test_a_device_that_leaves_is_replaced_at_once_and_otherwise_waited_for() -> None:
    state, (one, other), idle = opened()
    state, commands = after(TWO_OF_FOUR, DeviceLeft(device=one), state=state)
    lose = Lose(round=1, attempt=1, device=one, left=True)
    assert commands[:2] == [lose, Replace(round=1, attempt=1, devices=(idle[0],))]
    state, commands = after(TWO_OF_FOUR, DeviceLeft(device=one), DeviceLeft(device=other), state=state)
    assert commands[1] == Replace(round=1, attempt=1, devices=(idle[1],))
    state, commands = after(TWO_OF_FOUR, DeviceLeft(device=idle[1]), state=state)
    assert commands == [Lose(round=1, attempt=1, device=idle[1], left=True)], "nobody is idle"
    assert f"{one} (has left)" in waiting(TWO_OF_FOUR, state)
    state, commands = after(TWO_OF_FOUR, DeviceOnline(device=other), state=state)
    assert commands == [Assign(round=1, attempt=1, device=other)], "it returns"
    _, commands = after(TWO_OF_FOUR, accepted(other), accepted(idle[0]), state=state)
    assert only(commands, Reduce)


def test_nobody_joins_a_round_after_its_deadline_or_beyond_its_number() -> None:
    state, (one, _), _ = opened()
    again, commands = after(TWO_OF_FOUR, stalled(one), state=state)
    assert after(TWO_OF_FOUR, Progressed(round=1, attempt=1, device=one), stalled(one), state=again)[1] == [
        Lose(round=1, attempt=1, device=one)
    ], "it has its replacement"
    state, commands = after(TWO_OF_FOUR, DeadlinePassed(round=1, attempt=1), stalled(one), state=state)
    assert only(commands, Abandon)
    assert not only(commands, Replace)


def test_a_replacement_that_comes_online_later_joins_then() -> None:
    two = RunSettings(rounds=1, minimum_devices=2, quorum=Amount(fraction=1.0))
    state, _ = after(two, *devices_online("a", "b"))
    state, commands = after(two, stalled("a"), state=state)
    assert not only(commands, Replace)
    _, commands = after(two, *devices_online("c"), state=state)
    assert commands == [Replace(round=1, attempt=1, devices=("c",)), Assign(round=1, attempt=1, device="c")]


def test_the_next_attempt_counts_the_updates_of_an_abandoned_one_though_their_devices_left() -> None:
    state, (one, _), _ = opened()
    state, commands = after(TWO_OF_FOUR, accepted(one), DeadlinePassed(round=1, attempt=1), state=state)
    abandon = only(commands, Abandon)[0]
    assert isinstance(abandon, Abandon)
    assert abandon.reusable == {one: 1}
    assert SYNCHRONOUS.needed_attempts(TWO_OF_FOUR, state) == {(1, 1)}, "its file is kept"
    rest = (DeviceLeft(device=one), RetryDue(round=1, attempt=2))
    state, commands = after(TWO_OF_FOUR, *rest, state=state)
    opens = commands[0]
    assert isinstance(opens, Open)
    assert opens.reused == {one: 1}
    assert one in opens.cohort
    assert SYNCHRONOUS.needed_attempts(TWO_OF_FOUR, state) == {(1, 1), (1, 2)}
    assert rejection_reason(state, 1, 2, one) == f"the update of {one!r} from attempt 1 counts in round 1"
    (partner,) = set(opens.cohort) - {one}
    state, commands = after(TWO_OF_FOUR, DeadlinePassed(round=1, attempt=2), state=state)
    abandon = only(commands, Abandon)[0]
    assert isinstance(abandon, Abandon)
    assert abandon.reusable == {one: 1}
    state, commands = after(TWO_OF_FOUR, RetryDue(round=1, attempt=3), state=state)
    assert state.open
    (partner,) = state.open.outstanding
    _, commands = after(TWO_OF_FOUR, accepted(partner, 1, 3), state=state)
    assert commands == [Reduce(round=1, attempt=3, devices=tuple(sorted((one, partner))), reused={one: 1})]


def test_updates_that_could_not_be_reduced_are_not_reused() -> None:
    state, (one, other), _ = opened()
    failed = ReductionFailed(round=1, attempt=1, reason="nan")
    state, commands = after(TWO_OF_FOUR, accepted(one), accepted(other), failed, state=state)
    assert Abandon(round=1, attempt=1, missing=(), reason="nan") in commands
    assert not state.reusable


def test_an_attempt_whose_updates_are_all_there_is_reduced_as_it_opens() -> None:
    half = RunSettings(rounds=1, quorum=Amount(fraction=1.0))
    state, _ = after(half, *devices_online("a"))
    state, _ = after(half, *devices_online("b"), Declined(round=1, attempt=1, device="a"), accepted("b"), state=state)
    assert state.open
    assert state.open.reducing, "b replaced a"
    held = State(attempt=2, reusable={"b": 1})
    _, commands = after(half, *devices_online("b"), state=held)
    assert [type(command) for command in commands] == [Open, StartTimer, Reduce]


def test_a_run_fails_after_too_many_attempts_at_one_round() -> None:
    state, commands = after(THREE, *devices_online("a", "b", "c"))
    for attempt in range(1, 11):
        assert state.status == "running"
        state, commands = after(
            THREE, DeadlinePassed(round=1, attempt=attempt), RetryDue(round=1, attempt=attempt + 1), state=state
        )
    assert [type(command) for command in commands] == [Abandon, End]
    assert commands[-1] == End(status="failed")
    assert state.status == "failed"
    assert rejection_reason(state, 1, 10, "a") == "round 1, attempt 10 is not open; the run has failed"
    recovered = State(attempt=11)
    assert after(THREE, Resumed(), state=recovered)[1] == [End(status="failed")], "after a crash in between"


def test_attempts_count_from_the_latest_commit() -> None:
    state, _ = after(TWO_OF_FOUR, *devices_online(*"abcd"), DeadlinePassed(round=1, attempt=1))
    state = replace(state, committed=0, attempt=3, backing_off=False)
    state, _ = after(TWO_OF_FOUR, RetryDue(round=1, attempt=3), state=state)
    assert state.open
    one, other = state.open.cohort
    state, _ = after(
        replace(TWO_OF_FOUR, rounds=2),
        accepted(one, 1, 3),
        accepted(other, 1, 3),
        Reduced(round=1, attempt=3),
        state=state,
    )
    assert (state.committed, state.attempt, state.status) == (1, 1, "running")


def test_a_run_whose_online_devices_are_all_ineligible_fails_at_its_limit() -> None:
    lacks = DeviceOffline(device="a", ineligible="its labels reach 12; the model has 10 classes")
    state, commands = after(TWO_OF_FOUR, lacks)
    timeout = WaitTimedOut(round=1, attempt=1)
    assert commands == [StartTimer(seconds=3600.0, event=timeout)]
    assert after(TWO_OF_FOUR, lacks, state=state)[1] == [], "one timer is enough"
    reason = (
        "no eligible device within 3600 s: 1 device is online; "
        "not eligible: a (its labels reach 12; the model has 10 classes)"
    )
    for attempt in (1, 2):
        state, commands = after(
            TWO_OF_FOUR, WaitTimedOut(round=1, attempt=attempt), RetryDue(round=1, attempt=attempt + 1), state=state
        )
        assert commands[:2] == [
            Open(round=1, attempt=attempt, cohort=()),
            Abandon(round=1, attempt=attempt, missing=(), reason=reason),
        ]
    state, commands = after(TWO_OF_FOUR, WaitTimedOut(round=1, attempt=3), state=state)
    assert commands[-1] == End(status="failed")


def test_a_run_waits_without_limit_while_nobody_is_online_or_somebody_is_eligible() -> None:
    lacks = DeviceOffline(device="a", ineligible="without a label")
    for happened in ((DeviceOffline(device="a"),), devices_online("b"), (PauseRequested(),)):
        _, commands = after(TWO_OF_FOUR, lacks, *happened, WaitTimedOut(round=1, attempt=1))
        assert not only(commands, Abandon)
    _, commands = after(
        TWO_OF_FOUR, lacks, *devices_online("b"), WaitTimedOut(round=1, attempt=1), DeviceOffline(device="b")
    )
    assert len(only(commands, StartTimer)) == 2, "the wait begins anew"


def test_a_paused_run_finishes_its_round_replaces_nobody_and_opens_no_other() -> None:
    state, commands = after(THREE, *devices_online("a", "b", "c"), PauseRequested())
    assert commands[-1] == SetPaused(paused=True)
    assert waiting(THREE, state).endswith("; no further round opens until the run is resumed")
    state, commands = after(THREE, *devices_online("d"), stalled("a"), accepted("b"), accepted("c"), state=state)
    assert [type(command) for command in commands] == [Lose, Reduce]
    state, commands = after(THREE, Reduced(round=1, attempt=1), state=state)
    assert not commands
    assert (state.run_status, waiting(THREE, state)) == ("paused", "paused: no round opens until the run is resumed")
    state, commands = after(THREE, ResumeRequested(), state=state)
    assert [type(command) for command in commands[:2]] == [SetPaused, Open]
    assert state.run_status == "running"


def test_a_paused_run_can_be_stopped_and_pausing_twice_changes_nothing() -> None:
    state, _ = after(THREE, *devices_online("a", "b", "c"), PauseRequested())
    assert after(THREE, PauseRequested(), state=state) == (state, [SetPaused(paused=True)])
    state, commands = after(THREE, StopRequested(), state=state)
    assert [type(command) for command in commands] == [Abandon, End]
    assert isinstance(commands[0], Abandon)
    assert commands[0].reason == STOPPED
    assert state.run_status == "stopped"


def test_a_run_that_is_done_early_abandons_its_round_and_has_finished() -> None:
    state, commands = after(THREE, *devices_online("a", "b", "c"), StopRequested(status="finished"))
    assert isinstance(commands[-2], Abandon)
    assert commands[-2].reason.startswith(STOPPED)
    assert commands[-1] == End(status="finished")
    assert state.run_status == "finished"
