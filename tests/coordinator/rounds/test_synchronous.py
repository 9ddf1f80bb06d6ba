"""The state machine of a run, by examples."""

from __future__ import annotations

import pytest

from moonfed.control.kinds import Amount
from moonfed.control.run_settings import RunSettings
from moonfed.coordinator.rounds.events import (
    Abandon,
    Assign,
    Command,
    Damaged,
    DeadlinePassed,
    Declined,
    DeviceOffline,
    DeviceOnline,
    Discard,
    End,
    Event,
    Lose,
    Open,
    Progressed,
    Reduce,
    Reduced,
    ReductionFailed,
    Resumed,
    RetryDue,
    Stalled,
    StartTimer,
    StopRequested,
    UpdateRejected,
)
from moonfed.coordinator.rounds.progression import retry_seconds
from moonfed.coordinator.rounds.state import NOBODY, OpenRound, State
from moonfed.coordinator.rounds.status_text import rejection_reason, waiting
from tests.support.state_machine_fleet import after, devices_online, only
from tests.support.synchronous_run import THREE, accepted


def stalled(name: str) -> Event:
    return Stalled(round=1, attempt=1, device=name)


def timer(commands: list[Command], kind: type[Event]) -> Event:
    """The event of the latest timer of a kind."""
    return [c.event for c in commands if isinstance(c, StartTimer) and isinstance(c.event, kind)][-1]


def test_a_round_opens_when_enough_devices_are_online() -> None:
    state, commands = after(THREE, *devices_online("a", "b"))
    assert not commands
    assert waiting(THREE, state) == "waiting for 1 more device: 2 eligible, 3 needed"
    lacks = {"f": "without the encoding int8", "e": "without the encoding int8", "d": "without a label"}
    assert waiting(THREE, state, lacks) == (
        "waiting for 1 more device: 2 eligible, 3 needed; "
        "not eligible: e, f (without the encoding int8); not eligible: d (without a label)"
    )
    state, commands = after(THREE, *devices_online("c"), state=state)
    assert commands[0] == Open(round=1, attempt=1, cohort=("a", "b", "c"))
    assert [command.device for command in commands if isinstance(command, Assign)] == ["a", "b", "c"]
    assert waiting(THREE, state) == "round 1 waits for 3 of 3 devices: a, b, c"


def test_a_round_is_reduced_once_everybody_has_reported() -> None:
    state, commands = after(THREE, *devices_online("c", "b", "a"), accepted("b"), accepted("a"))
    assert not only(commands, Reduce)
    assert waiting(THREE, state) == "round 1 waits for 1 of 3 devices: c"
    state, commands = after(THREE, accepted("c"), state=state)
    assert commands == [Reduce(round=1, attempt=1, devices=("a", "b", "c"))]
    state, commands = after(THREE, Reduced(round=1, attempt=1), state=state)
    assert commands[0] == Open(round=2, attempt=1, cohort=("a", "b", "c"))


@pytest.mark.parametrize("kind", [UpdateRejected, Declined])
def test_a_round_does_not_wait_for_rejected_or_declined_devices(kind: type[UpdateRejected | Declined]) -> None:
    state, commands = after(THREE, *devices_online("a", "b", "c"), accepted("a"), accepted("b"))
    _, commands = after(THREE, kind(round=1, attempt=1, device="c"), state=state)
    assert commands == [Reduce(round=1, attempt=1, devices=("a", "b"))]


def test_the_deadline_keeps_partial_results_of_a_quorum() -> None:
    state, commands = after(THREE, *devices_online("a", "b", "c"), accepted("a"), accepted("c"))
    _, commands = after(THREE, timer([*after(THREE, *devices_online("a", "b", "c"))[1]], DeadlinePassed), state=state)
    assert commands == [Reduce(round=1, attempt=1, devices=("a", "c"))]


def test_a_round_without_quorum_is_abandoned_and_retried() -> None:
    state, commands = after(THREE, *devices_online("a", "b", "c"), accepted("a"), DeadlinePassed(round=1, attempt=1))
    abandon = only(commands, Abandon)[0]
    assert isinstance(abandon, Abandon)
    assert abandon.missing == ("b", "c")
    assert abandon.reason == "only 1 of 2 required updates counted when the round closed; late: b, c"
    assert not only(commands[commands.index(abandon) :], Open), "it rests first"
    assert waiting(THREE, state) == "round 1 was abandoned; attempt 2 may start within a minute"
    retry = timer(commands, RetryDue)
    state, commands = after(THREE, retry, state=state)
    assert commands[0] == Open(round=1, attempt=2, cohort=("a", "b", "c"), reused={"a": 1})
    assert [command.device for command in commands if isinstance(command, Assign)] == ["b", "c"]
    assert after(THREE, retry, state=state) == (state, []), "an old timer does nothing"
    state, _ = after(THREE, DeadlinePassed(round=1, attempt=2), state=state)
    assert after(THREE, retry, state=state) == (state, []), "nor does it end a later rest"


def test_retries_grow_and_are_capped() -> None:
    times = [retry_seconds(attempt) for attempt in range(1, 40)]
    assert times == sorted(times)
    assert times[0] < 1
    assert times[-1] == 60


def test_a_round_backs_off_longer_after_each_abandoned_attempt() -> None:
    state, rests = after(THREE, *devices_online("a", "b", "c"))[0], list[float]()
    for attempt in range(1, 10):
        state, commands = after(THREE, DeadlinePassed(round=1, attempt=attempt), state=state)
        rests += [command.seconds for command in commands if isinstance(command, StartTimer)]
        state, _ = after(THREE, timer(commands, RetryDue), state=state)
    assert rests == [0.5, 1, 2, 4, 8, 16, 32, 60, 60]


def test_a_lost_device_that_reconnects_is_assigned_again_and_counts() -> None:
    state, _ = after(THREE, *devices_online("a", "b", "c"), DeviceOffline(device="c"))
    assert waiting(THREE, state) == "round 1 waits for 3 of 3 devices: a, b, c (offline)"
    state, commands = after(THREE, stalled("c"), state=state)
    assert commands == [Lose(round=1, attempt=1, device="c")]
    assert state.open
    assert state.open.lost == {"c"}
    state, commands = after(THREE, DeviceOnline(device="c"), state=state)
    assert commands == [Assign(round=1, attempt=1, device="c")]
    _, commands = after(THREE, accepted("a"), accepted("b"), accepted("c"), state=state)
    assert commands == [Reduce(round=1, attempt=1, devices=("a", "b", "c"))]


def test_a_lost_device_that_shows_progress_is_waited_for_again() -> None:
    state, _ = after(THREE, *devices_online("a", "b", "c"), stalled("c"), Progressed(round=1, attempt=1, device="c"))
    _, commands = after(THREE, accepted("a"), accepted("b"), state=state)
    assert not commands, "it was not assigned again either: it is at work"


def test_a_device_that_is_not_waited_for_cannot_be_lost() -> None:
    state, _ = after(THREE, *devices_online("a", "b", "c"), accepted("a"), Declined(round=1, attempt=1, device="b"))
    assert after(THREE, stalled("a"), stalled("b"), stalled("z"), state=state) == (state, [])
    assert after(THREE, Stalled(round=1, attempt=2, device="c"), state=state) == (state, [])


def test_a_round_whose_devices_are_all_lost_closes_early() -> None:
    _, commands = after(THREE, *devices_online("a", "b", "c"), stalled("a"), stalled("b"), stalled("c"))
    assert only(commands, Abandon)


FOUR = RunSettings(rounds=2, cohort=Amount(count=3), minimum_devices=4, quorum=Amount(count=2), over_selection=0.3)


def test_an_over_selected_round_closes_with_the_cohorts_number_of_updates() -> None:
    state, commands = after(FOUR, *devices_online("a", "b", "c", "d"))
    assert commands[0] == Open(round=1, attempt=1, cohort=("a", "b", "c", "d")), "3.9 devices, rounded up"
    state, commands = after(FOUR, accepted("d"), accepted("b"), state=state)
    assert not commands
    state, commands = after(FOUR, accepted("c"), state=state)
    assert commands == [Reduce(round=1, attempt=1, devices=("b", "c", "d"))]
    assert rejection_reason(state, 1, 1, "a") == "round 1, attempt 1 has closed; wait for the next assignment"


def test_the_quorum_refers_to_the_cohort_without_over_selection() -> None:
    half = RunSettings(rounds=1, cohort=Amount(count=4), quorum=Amount(fraction=0.5), over_selection=1.0)
    state, commands = after(half, Resumed(online=dict.fromkeys("abcdefgh", 0)))
    assert len(only(commands, Assign)) == 8
    _, commands = after(half, accepted("a"), accepted("b"), DeadlinePassed(round=1, attempt=1), state=state)
    assert commands == [Reduce(round=1, attempt=1, devices=("a", "b"))]


def test_dismissed_stragglers_do_not_replace_a_damaged_update_of_an_over_selected_round() -> None:
    state, _ = after(FOUR, *devices_online("a", "b", "c", "d"), accepted("a"), accepted("b"), accepted("c"))
    _, commands = after(FOUR, Damaged(round=1, attempt=1, devices=("b",)), state=state)
    assert commands == [Discard(round=1, attempt=1, device="b"), Reduce(round=1, attempt=1, devices=("a", "c"))]


def test_a_stopped_run_abandons_its_round_and_ends() -> None:
    state, commands = after(THREE, *devices_online("a", "b", "c"), StopRequested())
    assert commands[-2:] == [
        Abandon(round=1, attempt=1, missing=("a", "b", "c"), reason="the run was stopped"),
        End(status="stopped"),
    ]
    assert after(THREE, accepted("a"), state=state) == (state, [])


def test_a_round_that_is_being_reduced_is_committed_before_the_run_stops() -> None:
    state, _ = after(THREE, *devices_online("a", "b", "c"), accepted("a"), accepted("b"), accepted("c"))
    state, commands = after(THREE, StopRequested(), state=state)
    assert not commands
    state, commands = after(THREE, Reduced(round=1, attempt=1), state=state)
    assert commands == [End(status="stopped")]
    assert state.committed == 1


def test_a_stopped_run_ends_at_once_when_a_damaged_update_costs_its_last_round_the_quorum() -> None:
    state, _ = after(
        THREE, *devices_online("a", "b", "c"), accepted("a"), accepted("b"), accepted("c"), StopRequested()
    )
    state, commands = after(THREE, Damaged(round=1, attempt=1, devices=("a", "b")), state=state)
    assert only(commands, Abandon)
    assert commands[-1] == End(status="stopped")


def test_a_failed_reduction_abandons_the_round() -> None:
    state, _ = after(THREE, *devices_online("a", "b", "c"), accepted("a"), accepted("b"), accepted("c"))
    state, commands = after(THREE, ReductionFailed(round=1, attempt=1, reason="disk"), state=state)
    assert commands[0] == Abandon(round=1, attempt=1, missing=(), reason="disk")
    assert (state.committed, state.attempt) == (0, 2)


def test_a_reduction_that_failed_transiently_is_retried_with_all_acknowledged_updates() -> None:
    state, _ = after(THREE, *devices_online("a", "b", "c"), accepted("a"), accepted("b"), accepted("c"))
    failed = ReductionFailed(round=1, attempt=1, reason="the disk is full", transient=True)
    retry = RetryDue(round=1, attempt=1)
    state, commands = after(THREE, failed, state=state)
    assert commands == [StartTimer(seconds=0.5, event=retry)]
    assert waiting(THREE, state) == "the reduction of round 1 failed; retrying within a minute: the disk is full"
    assert rejection_reason(state, 1, 1, "a") == "round 1, attempt 1 has closed; wait for the next assignment"
    state, commands = after(THREE, accepted("a"), DeadlinePassed(round=1, attempt=1), state=state)
    assert not commands, "it is never given up"
    again = Reduce(round=1, attempt=1, devices=("a", "b", "c"))
    state, commands = after(THREE, retry, state=state)
    assert commands == [again]
    assert after(THREE, retry, state=state)[1] == [], "one at a time"
    state, commands = after(THREE, failed, state=state)
    assert commands == [StartTimer(seconds=1.0, event=retry)], "growing"
    state, _ = after(THREE, retry, Reduced(round=1, attempt=1), state=state)
    assert (state.committed, state.attempt, state.failures, state.reduction_error) == (1, 1, 0, "")


def test_a_run_can_be_stopped_while_its_round_cannot_be_reduced() -> None:
    state, _ = after(THREE, *devices_online("a", "b", "c"), accepted("a"), accepted("b"), accepted("c"))
    trouble = ReductionFailed(round=1, attempt=1, reason="the disk is full", transient=True)
    state, commands = after(THREE, trouble, StopRequested(), state=state)
    assert commands[1:] == [
        Abandon(round=1, attempt=1, missing=(), reason="the run was stopped"),
        End(status="stopped"),
    ]


def test_a_stopping_run_does_not_retry_a_transient_failure() -> None:
    state, _ = after(
        THREE, *devices_online("a", "b", "c"), accepted("a"), accepted("b"), accepted("c"), StopRequested()
    )
    trouble = ReductionFailed(round=1, attempt=1, reason="the disk is full", transient=True)
    _, commands = after(THREE, trouble, state=state)
    assert commands[0] == Abandon(round=1, attempt=1, missing=(), reason="the disk is full")
    assert commands[-1] == End(status="stopped")


def test_a_damaged_update_is_discarded_and_the_rest_is_reduced_while_there_is_a_quorum() -> None:
    state, _ = after(THREE, *devices_online("a", "b", "c"), accepted("a"), accepted("b"), accepted("c"))
    state, commands = after(THREE, Damaged(round=1, attempt=1, devices=("b",)), state=state)
    assert commands == [Discard(round=1, attempt=1, device="b"), Reduce(round=1, attempt=1, devices=("a", "c"))]
    state, commands = after(THREE, Damaged(round=1, attempt=1, devices=("a",)), state=state)
    reason = "only 1 of 2 required updates counted when the round closed; rejected: a, b"
    assert commands[:2] == [
        Discard(round=1, attempt=1, device="a"),
        Abandon(round=1, attempt=1, missing=("a", "b"), reason=reason, reusable={"c": 1}),
    ]


def test_the_open_round_resumes_after_a_restart() -> None:
    held = OpenRound(round=2, attempt=3, cohort=("a", "b", "c"), reported=frozenset("a"))
    state, commands = after(THREE, Resumed(), state=State(committed=1, attempt=3, open=held))
    assert timer(commands, DeadlinePassed) == DeadlinePassed(round=2, attempt=3)
    assert not only(commands, Lose)
    state, commands = after(THREE, *devices_online("a", "b"), state=state)
    assert commands == [Assign(round=2, attempt=3, device="b")]
    _, commands = after(THREE, accepted("b", 2, 3), Declined(round=2, attempt=3, device="c"), state=state)
    assert commands == [Reduce(round=2, attempt=3, devices=("a", "b"))]


def test_a_starting_run_draws_its_cohort_from_all_online_devices() -> None:
    settings = RunSettings(rounds=1, minimum_devices=2)
    _, commands = after(settings, Resumed(online=dict.fromkeys("abc", 0)))
    assert only(commands, Open) == [Open(round=1, attempt=1, cohort=("a", "b", "c"))]


def test_the_cohorts_online_devices_are_assigned_again_after_a_restart() -> None:
    held = OpenRound(round=1, attempt=1, cohort=("a", "b", "c"), reported=frozenset("a"))
    _, commands = after(THREE, Resumed(online=dict.fromkeys("ab", 0)), state=State(open=held))
    assert only(commands, Assign) == [Assign(round=1, attempt=1, device="b")]


def test_after_a_restart_a_complete_round_is_reduced_at_once() -> None:
    held = OpenRound(round=1, attempt=1, cohort=("a", "b"), reported=frozenset("ab"))
    _, commands = after(THREE, Resumed(), state=State(open=held))
    assert only(commands, Reduce) == [Reduce(round=1, attempt=1, devices=("a", "b"))]


def test_a_device_whose_update_was_rejected_may_decline_and_delivers_nothing_from_then_on() -> None:
    declined = Declined(round=1, attempt=1, device="c")
    state, _ = after(THREE, *devices_online("a", "b", "c"), UpdateRejected(round=1, attempt=1, device="c"), declined)
    assert state.open
    assert (state.open.rejected, state.open.declined) == (NOBODY, frozenset("c"))
    assert after(THREE, accepted("c"), declined, state=state) == (state, [])
