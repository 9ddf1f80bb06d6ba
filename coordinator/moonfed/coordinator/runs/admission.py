"""Whether a run wants an update, by where it stands: asked before anything of the update is taken."""

from __future__ import annotations

from moonfed.coordinator.records import AttemptId, RunRecord
from moonfed.coordinator.rounds.protocol import round_protocol
from moonfed.coordinator.rounds.state import State
from moonfed.coordinator.runs.round_eta import RoundEta
from moonfed.errors import TooLate, WrongState


def needed_attempts(record: RunRecord, state: State) -> set[AttemptId]:
    """The attempts whose updates may come, or lie in the spool."""
    places = round_protocol(record.settings).needed_attempts(record.settings, state)
    return {AttemptId(run=record.run, round=round_, attempt=attempt) for round_, attempt in places}


def objection(record: RunRecord, state: State, tempo: RoundEta, attempt: AttemptId, device: str) -> WrongState | None:
    """Why a device's update is not wanted now, and when the device may be; None if it is."""
    place = attempt.round, attempt.attempt
    problem = round_protocol(record.settings).rejection_reason(record.settings, state, *place, device)
    if problem is None:
        return None
    sentence, current = f"run {record.run!r}: {problem}", state.open
    if current and attempt in needed_attempts(record, state) and not (current.reducing or current.overdue):
        return WrongState(sentence)  # the device has no part in the round
    return TooLate(sentence, tempo.until_next_round(state))
