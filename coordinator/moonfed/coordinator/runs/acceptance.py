"""The updates that a run accepts in its present state, and the reason why it rejects another."""

from __future__ import annotations

from moonfed.coordinator.records import AttemptId, RunRecord
from moonfed.coordinator.rounds.protocol import round_protocol
from moonfed.coordinator.rounds.state import State
from moonfed.coordinator.runs.round_eta import RoundEta
from moonfed.errors import TooLate, WrongState


def needed_attempts(record: RunRecord, state: State) -> set[AttemptId]:
    """Return the attempts whose updates may still arrive, or are in the spool."""
    attempts = round_protocol(record.settings).needed_attempts(record.settings, state)
    return {AttemptId(run=record.run, round=round_, attempt=attempt) for round_, attempt in attempts}


def phase(state: State) -> tuple[object, ...]:
    """Return the part of a run's state on which its admissions depend, apart from the reports of their own devices."""
    current = state.open
    position = (current.round, current.attempt, current.reducing, current.overdue) if current else None
    return state.status, state.stopping, state.committed, position


def rejection_reason(
    record: RunRecord, state: State, eta: RoundEta, attempt: AttemptId, device: str
) -> WrongState | None:
    """Return why a run does not count a device's update now, if so; TooLate estimates when to return."""
    protocol = round_protocol(record.settings)
    problem = protocol.rejection_reason(record.settings, state, attempt.round, attempt.attempt, device)
    if problem is None:
        return None
    sentence, current = f"run {record.run!r}: {problem}", state.open
    is_open = current and attempt.attempt == current.attempt and attempt in needed_attempts(record, state)
    if current and is_open and not (current.reducing or current.overdue):
        return WrongState(sentence)  # the device is not in the round
    return TooLate(sentence, eta.until_next_round(state))
