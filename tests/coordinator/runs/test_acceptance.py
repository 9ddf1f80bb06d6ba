"""Acceptance of updates in a run's present state."""

from __future__ import annotations

from dataclasses import replace

from moonfed.coordinator.rounds.state import OpenRound, State
from moonfed.coordinator.runs.acceptance import needed_attempts, phase, rejection_reason
from moonfed.coordinator.runs.round_eta import RoundEta
from moonfed.errors import TooLate, WrongState
from tests.support.store_records import FIRST, RUN

ROUND = OpenRound(round=1, attempt=1, cohort=("a", "b"))
OPEN = State(open=ROUND, online=frozenset("ab"))


def test_the_phase_changes_when_admissions_must_be_reviewed() -> None:
    unchanged = replace(OPEN, open=replace(ROUND, reported=frozenset("a")), online=frozenset("a"))
    assert phase(unchanged) == phase(OPEN)
    for changed in (
        replace(OPEN, open=None),
        replace(OPEN, stopping="stopped"),
        replace(OPEN, open=replace(ROUND, reducing=True)),
        replace(OPEN, open=replace(ROUND, overdue=True)),
        replace(OPEN, open=replace(ROUND, attempt=2)),
    ):
        assert phase(changed) != phase(OPEN)


def test_only_a_late_device_is_told_when_to_come_back() -> None:
    eta = RoundEta(clock=lambda: 0.0)
    assert needed_attempts(RUN, OPEN) == {FIRST}
    assert rejection_reason(RUN, OPEN, eta, FIRST, "a") is None
    stranger = rejection_reason(RUN, OPEN, eta, FIRST, "z")
    assert type(stranger) is WrongState
    assert str(stranger).startswith("run 'digits': device 'z'")
    closed = replace(OPEN, open=replace(ROUND, reducing=True))
    late = rejection_reason(RUN, closed, eta, FIRST, "a")
    assert isinstance(late, TooLate)
    assert late.retry_after_seconds == 1.0
    stale = rejection_reason(RUN, OPEN, eta, replace(FIRST, attempt=2), "a")
    assert isinstance(stale, TooLate)
    assert "attempt 2 is not open" in str(stale)
