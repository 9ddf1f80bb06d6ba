"""The state machine of an asynchronous run, by examples."""

from __future__ import annotations

from dataclasses import replace

import pytest

from moonfed.control.kinds import Amount
from moonfed.control.run_settings import RunSettings
from moonfed.coordinator.rounds.events import (
    Abandon,
    Damaged,
    DeadlinePassed,
    Declined,
    DeviceLeft,
    DeviceOffline,
    DeviceOnline,
    Discard,
    End,
    Join,
    Lose,
    Open,
    PauseRequested,
    Progressed,
    Reduce,
    ReductionFailed,
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
from moonfed.coordinator.rounds.fedbuff_state import FedBuffState
from moonfed.coordinator.rounds.protocol import FEDBUFF
from moonfed.coordinator.rounds.sizes import devices_needed, models_needed
from tests.support.fedbuff_run import TWO, accepted, after, assigned, reduced, rejection_reason
from tests.support.state_machine_fleet import devices_online, only


def test_the_first_round_opens_once_the_buffer_can_be_filled() -> None:
    state, commands = after(*devices_online("a", "b"))
    assert not commands
    assert FEDBUFF.waiting(TWO, state) == "waiting for 1 more device: 2 eligible, 3 needed"
    _, commands = after(*devices_online("c"), state=state)
    assert commands[0] == Open(round=1, attempt=1, cohort=("a", "b", "c"))
    assert assigned(commands) == [("a", 1), ("b", 1), ("c", 1)]
    assert devices_needed(RunSettings(rounds=1, asynchronous=7)) == 7


def test_k_updates_make_a_model_and_the_slow_device_continues_with_its_own() -> None:
    state, commands = after(*devices_online("a", "b", "c"), accepted("b"))
    assert not only(commands, Reduce)
    assert FEDBUFF.waiting(TWO, state) == "round 1 has 1 of 2 updates; training: a, c"
    assert str(rejection_reason(state, 1, "b")).startswith("device 'b' has no pending update for round 1;")
    state, commands = after(accepted("a"), state=state)
    assert commands == [Reduce(round=1, attempt=1, devices=("a", "b"), bases={"a": 1, "b": 1})]
    state, commands = after(reduced(1), state=state)
    assert commands[0] == Open(round=2, attempt=1, cohort=("a", "b"))
    assert assigned(commands) == [("a", 2), ("b", 2)]
    assert rejection_reason(state, 1, "c") is None
    state, commands = after(accepted("c", 1), accepted("a", 2), state=state)
    assert commands == [Reduce(round=2, attempt=1, devices=("a", "c"), bases={"a": 2, "c": 1})]


def test_the_next_round_opens_though_devices_have_left() -> None:
    """Otherwise updates of devices in training would be rejected while the others are offline."""
    state, _ = after(*devices_online("a", "b", "c"), accepted("a"), accepted("b"))
    state, commands = after(
        DeviceOffline(device="a"), DeviceOffline(device="b"), DeviceOffline(device="c"), reduced(1), state=state
    )
    assert only(commands, Open) == [Open(round=2, attempt=1, cohort=())]
    assert rejection_reason(state, 1, "c") is None


def test_updates_received_during_a_reduction_are_in_the_next_buffer() -> None:
    state, _ = after(*devices_online("a", "b", "c"), accepted("a"), accepted("b"))
    state, commands = after(accepted("c"), state=state)
    assert not commands
    state, commands = after(reduced(1), state=state)
    assert state.buffer == {"c": 1}
    assert assigned(commands) == [("a", 2), ("b", 2)], "c waits for the model that its update is in"
    state, commands = after(accepted("b", 2), state=state)
    assert only(commands, Reduce) == [Reduce(round=2, attempt=1, devices=("b", "c"), bases={"b": 2, "c": 1})]


def test_a_run_keeps_its_cohort_of_devices_training() -> None:
    settings = RunSettings(rounds=9, cohort=Amount(count=2), minimum_devices=4, asynchronous=3, max_staleness=5)
    state, commands = after(*devices_online("a", "b", "c", "d"), settings=settings)
    first = [device for device, _ in assigned(commands)]
    assert len(first) == 2
    state, commands = after(accepted(first[0]), state=state, settings=settings)
    (second,) = assigned(commands)
    assert second[0] not in first
    assert only(commands, Join) == [Join(round=1, attempt=1, device=second[0])], "it is on record who began with it"
    _, commands = after(Stalled(round=1, attempt=1, device=first[1]), state=state, settings=settings)
    assert only(commands, Lose)
    assert len(assigned(commands)) == 1, "a lost device keeps nobody from working"


def test_a_reconnecting_device_resumes_its_assignment() -> None:
    state, _ = after(*devices_online("a", "b", "c"), accepted("a"), accepted("b"), reduced(1))
    state, commands = after(DeviceOffline(device="c"), Stalled(round=2, attempt=1, device="c"), state=state)
    assert FEDBUFF.waiting(TWO, state) == "round 2 has 0 of 2 updates; training: a, b"
    state, commands = after(DeviceOnline(device="c"), state=state)
    assert assigned(commands) == [("c", 1)]
    assert rejection_reason(state, 1, "c") is None
    state, _ = after(Stalled(round=2, attempt=1, device="c"), Progressed(round=2, attempt=1, device="c"), state=state)
    assert "c" in state.working


@pytest.mark.parametrize("kind", [UpdateRejected, Declined])
def test_rejected_and_declined_devices_are_assigned_again_with_the_next_model(
    kind: type[UpdateRejected | Declined],
) -> None:
    state, _ = after(*devices_online("a", "b", "c"), kind(round=1, attempt=1, device="a"))
    state, commands = after(accepted("b"), accepted("c"), state=state)
    assert not assigned(commands)
    _, commands = after(reduced(1), state=state)
    assert assigned(commands) == [("a", 2), ("b", 2), ("c", 2)]


def test_a_device_that_declined_and_reconnects_is_assigned_again() -> None:
    state, _ = after(
        *devices_online("a", "b", "c"), Declined(round=1, attempt=1, device="a"), DeviceOffline(device="a")
    )
    _, commands = after(DeviceOnline(device="a"), state=state)
    assert assigned(commands) == [("a", 1)]


def test_at_the_deadline_a_quorum_of_the_buffer_is_enough() -> None:
    state, commands = after(*devices_online("a", "b", "c"), DeadlinePassed(round=1, attempt=1))
    assert not only(commands, Reduce), "there is nothing to reduce"
    _, commands = after(accepted("c"), state=state)
    assert commands == [Reduce(round=1, attempt=1, devices=("c",), bases={"c": 1})], "half of two"


def test_a_buffer_whose_reduction_fails_is_kept_and_retried() -> None:
    state, _ = after(*devices_online("a", "b", "c"), accepted("a"), accepted("b"))
    state, commands = after(ReductionFailed(round=1, attempt=1, reason="the disk is full"), state=state)
    retry = RetryDue(round=1, attempt=1)
    assert commands == [StartTimer(seconds=0.5, event=retry)]
    assert FEDBUFF.waiting(TWO, state).endswith(": the disk is full")
    state, commands = after(accepted("c"), state=state)
    assert not commands
    state, commands = after(retry, state=state)
    assert commands == [Reduce(round=1, attempt=1, devices=("a", "b", "c"), bases=dict.fromkeys("abc", 1))]
    _, commands = after(ReductionFailed(round=1, attempt=1, reason="the disk is full"), state=state)
    assert commands == [StartTimer(seconds=1.0, event=retry)], "growing"


def test_damaged_updates_are_discarded_and_the_others_wait_for_more() -> None:
    state, _ = after(*devices_online("a", "b", "c"), accepted("a"), accepted("b"))
    state, commands = after(Damaged(round=1, attempt=1, devices=("a",)), state=state)
    assert commands == [Discard(round=1, attempt=1, device="a")]
    _, commands = after(accepted("c"), state=state)
    assert commands == [Reduce(round=1, attempt=1, devices=("b", "c"), bases={"b": 1, "c": 1})]


def test_a_stopped_run_ends_at_once_or_when_its_buffer_is_reduced() -> None:
    state, commands = after(*devices_online("a", "b", "c"), accepted("a"), StopRequested())
    assert commands[-2:] == [
        Abandon(round=1, attempt=1, missing=("a", "b", "c"), reason="the run was stopped"),
        End(status="stopped"),
    ]
    assert FEDBUFF.needed_attempts(TWO, state) == frozenset()
    state, commands = after(*devices_online("a", "b", "c"), accepted("a"), accepted("b"), StopRequested(), reduced(1))
    assert commands[-1] == End(status="stopped")
    assert state.committed == 1


def test_updates_acknowledged_before_a_stop_are_on_record_with_the_reason() -> None:
    _, commands = after(
        *devices_online("a", "b", "c"), accepted("a"), accepted("b"), accepted("c"), StopRequested(), reduced(1)
    )
    assert commands[-3:] == [
        Open(round=2, attempt=1, cohort=()),
        Abandon(round=2, attempt=1, missing=(), reason="the run was stopped"),
        End(status="stopped"),
    ]


def test_training_devices_resume_their_assignments_after_a_restart() -> None:
    state, _ = after(*devices_online("a", "b", "c"), accepted("a"), accepted("b"), reduced(1), accepted("a", 2))
    held = FedBuffState(committed=1, open=state.open, tasks=state.tasks, buffer=state.buffer)
    state, commands = after(Resumed(online=dict.fromkeys("abc", 0)), state=held)
    assert StartTimer(seconds=100, event=DeadlinePassed(round=2, attempt=1)) in commands
    assert assigned(commands) == [("b", 2), ("c", 1)]
    _, commands = after(accepted("c", 1), state=state)
    assert commands == [Reduce(round=2, attempt=1, devices=("a", "c"), bases={"a": 2, "c": 1})]


def test_asynchronous_rounds_keep_the_models_that_may_be_asked_for() -> None:
    many = RunSettings(rounds=1, asynchronous=3, max_staleness=40)
    assert models_needed(many) == 41


def test_a_device_that_leaves_frees_its_place_and_returns_to_its_work() -> None:
    settings = replace(TWO, cohort=Amount(count=2))
    state, _ = after(*devices_online("a", "b", "c"), settings=settings)
    left, idle = sorted(state.tasks)[0], ({"a", "b", "c"} - set(state.tasks)).pop()
    state, commands = after(DeviceLeft(device=left), state=state, settings=settings)
    assert commands[0] == Lose(round=1, attempt=1, device=left, left=True)
    assert assigned(commands) == [(idle, 1)]
    state, commands = after(Progressed(round=1, attempt=1, device=left), state=state, settings=settings)
    assert left in state.lost, "its last heartbeat does not bring it back"
    state, commands = after(DeviceOnline(device=left), state=state, settings=settings)
    assert assigned(commands) == [(left, 1)]
    assert not state.lost


def test_a_paused_run_counts_the_work_in_progress_and_assigns_no_other() -> None:
    state, _ = after(*devices_online("a", "b", "c"), PauseRequested())
    state, commands = after(accepted("a"), accepted("b"), state=state)
    assert only(commands, Reduce)
    state, commands = after(reduced(1), state=state)
    assert commands == [
        Open(round=2, attempt=1, cohort=()),
        StartTimer(seconds=100, event=DeadlinePassed(round=2, attempt=1)),
    ], "for the update that c is at work on"
    assert FEDBUFF.waiting(TWO, state) == (
        "round 2 has 0 of 2 updates; paused: no device is assigned until the run is resumed; training: c"
    )
    state, commands = after(accepted("c", 1), DeadlinePassed(round=2, attempt=1), state=state)
    assert only(commands, Reduce) == [Reduce(round=2, attempt=1, devices=("c",), bases={"c": 1})]
    state, commands = after(reduced(2), state=state)
    assert (commands, state.open) == ([], None), "nobody is at work"
    state, commands = after(ResumeRequested(), state=state)
    assert commands[0] == SetPaused(paused=False)
    assert assigned(commands) == [("a", 3), ("b", 3), ("c", 3)]


def test_a_resumed_run_gives_its_open_round_a_new_deadline() -> None:
    state, _ = after(*devices_online("a", "b", "c"), PauseRequested(), DeadlinePassed(round=1, attempt=1))
    assert (state.overdue, state.fruitless) == (True, 0)
    state, commands = after(ResumeRequested(), state=state)
    assert commands == [
        SetPaused(paused=False),
        StartTimer(seconds=100, event=DeadlinePassed(round=1, attempt=1)),
    ]
    assert not state.overdue


def test_a_run_fails_after_too_many_deadlines_or_reductions_without_a_model() -> None:
    settings = replace(TWO, max_attempts=3)
    overdue, failed = DeadlinePassed(round=1, attempt=1), ReductionFailed(round=1, attempt=1, reason="nan")
    state, commands = after(*devices_online("a", "b", "c"), overdue, settings=settings)
    assert StartTimer(seconds=100, event=overdue) in commands, "the next one begins"
    state, commands = after(accepted("a"), failed, RetryDue(round=1, attempt=1), state=state, settings=settings)
    assert state.fruitless == 2
    state, commands = after(failed, state=state, settings=settings)
    assert [type(command) for command in commands] == [StartTimer, Abandon, End]
    assert commands[1] == Abandon(round=1, attempt=1, missing=("a", "b", "c"), reason="nan")
    assert commands[2] == End(status="failed")
    assert (state.status, state.buffer) == ("failed", {})


def test_a_model_or_a_transient_failure_or_a_fleet_that_is_away_does_not_count_as_an_attempt() -> None:
    overdue = DeadlinePassed(round=1, attempt=1)
    state, _ = after(*devices_online("a", "b", "c"), overdue)
    assert state.fruitless == 1
    away, _ = after(*(DeviceOffline(device=name) for name in "abc"), overdue, state=state)
    assert away.fruitless == 1
    transient = ReductionFailed(round=1, attempt=1, reason="the disk is full", transient=True)
    state, _ = after(accepted("a"), transient, RetryDue(round=1, attempt=1), state=state)
    assert state.fruitless == 1
    state, _ = after(reduced(1), state=state)
    assert state.fruitless == 0


def test_a_run_whose_online_devices_are_all_ineligible_fails_before_its_first_round() -> None:
    settings = replace(TWO, max_attempts=2)
    timeout = WaitTimedOut(round=1, attempt=1)
    state, commands = after(DeviceOffline(device="a", ineligible="without a label"), timeout, settings=settings)
    assert commands == 2 * [StartTimer(seconds=100, event=timeout)]
    state, commands = after(timeout, state=state, settings=settings)
    reason = "no eligible device within 100 s: 1 device is online; not eligible: a (without a label)"
    assert commands == [
        Open(round=1, attempt=1, cohort=()),
        Abandon(round=1, attempt=1, missing=(), reason=reason),
        End(status="failed"),
    ]
    assert state.status == "failed"
