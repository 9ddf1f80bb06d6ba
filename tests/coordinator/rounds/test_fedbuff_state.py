"""Acceptance of updates by an asynchronous run."""

from __future__ import annotations

from dataclasses import replace

from moonfed.coordinator.rounds.events import Open, Reduce, StopRequested
from moonfed.coordinator.rounds.protocol import FEDBUFF
from tests.support.fedbuff_run import TWO, accepted, after, assigned, reduced, rejection_reason
from tests.support.state_machine_fleet import devices_online, only


def test_a_stale_update_is_rejected_and_its_device_starts_again() -> None:
    state, _ = after(*devices_online("a", "b", "c"), accepted("a"), accepted("b"), reduced(1))
    state, commands = after(accepted("a", 2), accepted("b", 2), state=state)
    assert str(rejection_reason(state, 1, "c")).startswith(
        "the update of 'c' began 2 models ago, and at most 1 are allowed"
    ), "the round that would count it is the third"
    state, commands = after(reduced(2), state=state)
    assert commands[0] == Open(round=3, attempt=1, cohort=("a", "b", "c"))
    assert ("c", 3) in assigned(commands)
    assert str(rejection_reason(state, 1, "c")).startswith("the update of 'c' began 2 models ago")
    assert "is not open" in str(rejection_reason(state, 4, "c"))
    assert "is not open" in str(rejection_reason(state, 3, "c", attempt=2))
    assert after(accepted("c", 1), state=state) == (state, [])


def test_nothing_is_acknowledged_that_no_later_round_would_count() -> None:
    last = replace(TWO, rounds=1)
    state, commands = after(*devices_online("a", "b", "c"), accepted("a"), accepted("b"), settings=last)
    assert only(commands, Reduce)
    assert FEDBUFF.rejection_reason(last, state, 1, 1, "c") == "round 1 is the run's last, and has closed"
    state, _ = after(*devices_online("a", "b", "c"), accepted("a"), accepted("b"))
    assert rejection_reason(state, 1, "c") is None
    state, _ = after(StopRequested(), state=state)
    assert rejection_reason(state, 1, "c") == "round 1 is the run's last, and has closed"
