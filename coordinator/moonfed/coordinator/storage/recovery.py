"""Reconstruction of a run's state from the database.

An asynchronous run's buffer is what no committed round has counted.
"""

from __future__ import annotations

from dataclasses import replace
from functools import singledispatch
from typing import Literal

from moonfed.control.run_settings import RunSettings
from moonfed.coordinator.records import AttemptId
from moonfed.coordinator.rounds.events import EARLY, STOPPED
from moonfed.coordinator.rounds.fedbuff_state import ATTEMPT, FedBuffState
from moonfed.coordinator.rounds.protocol import round_protocol
from moonfed.coordinator.rounds.state import OpenRound, State
from moonfed.coordinator.storage.store import Store


def recovered_state(store: Store, run: str) -> State:
    """Reconstruct a run's state when the coordinator ended, within a round or between two."""
    record = store.run(run)
    state = _recover(round_protocol(record.settings).first, store, run, record.settings)
    return replace(state, paused=record.status == "paused")


@singledispatch
def _recover(first: State, store: Store, run: str, settings: RunSettings) -> State:
    """Recover a run, dispatching on its first state's type; synchronous runs here."""
    last = store.latest_round(run)
    if last is None:
        return first
    if last.status == "committed":
        return State(committed=last.id.round)
    committed = last.id.round - 1
    if last.status == "abandoned":
        return State(committed=committed, attempt=last.id.attempt + 1, reusable=last.reusable)
    reports = store.reports.of_attempt(last.id)
    devices = {
        outcome: frozenset(report.device for report in reports if report.outcome == outcome)
        for outcome in ("accepted", "rejected", "declined")
    }
    current = OpenRound(
        round=last.id.round,
        attempt=last.id.attempt,
        cohort=last.cohort,
        replacements=frozenset(last.replacements),
        reused=last.reused,
        reported=devices["accepted"] | (last.reused.keys() - devices["rejected"]),  # unless it was found damaged
        rejected=devices["rejected"],
        declined=devices["declined"],
        overdue=last.status == "reducing",  # it has closed, and must be reduced again
    )
    return State(committed=committed, attempt=last.id.attempt, open=current)


@_recover.register
def _recover_fedbuff(first: FedBuffState, store: Store, run: str, settings: RunSettings) -> FedBuffState:
    """Reconstruct the buffer, and each training device's model: that of the newest round that it was drawn in."""
    last = store.latest_round(run)
    if last is None:
        return first
    if last.status == "abandoned":  # as the run was being stopped, or failed
        if last.reason.startswith(STOPPED):
            status: Literal["stopped", "finished"] = "finished" if last.reason.startswith(EARLY) else "stopped"
            return FedBuffState(committed=last.id.round - 1, stopping=status)
        return FedBuffState(committed=last.id.round - 1, fruitless=settings.max_attempts, setback=last.reason)
    committed = last.id.round - (last.status == "open")
    oldest = max(1, committed + 1 - settings.max_staleness)
    found = (
        store.round(AttemptId(run=run, round=round_, attempt=ATTEMPT)) for round_ in range(oldest, last.id.round + 1)
    )
    rounds = [record for record in found if record]
    counted = {(device, begun) for record in rounds for device, begun in record.bases.items()}
    tasks: dict[str, int] = {}
    buffer: dict[str, int] = {}
    spent: dict[str, set[str]] = {"rejected": set(), "declined": set()}  # in the open round
    for record in rounds:
        outcomes = {report.device: report.outcome for report in store.reports.of_attempt(record.id)}
        for device in record.cohort:
            tasks.pop(device, None)
            outcome = outcomes.get(device)
            if outcome is None:
                tasks[device] = record.id.round
            elif outcome == "accepted" and (device, record.id.round) not in counted:
                buffer[device] = record.id.round
            elif outcome != "accepted" and record.id.round == committed + 1:
                spent[outcome].add(device)
    return FedBuffState(
        committed=committed,
        open=OpenRound(round=last.id.round, attempt=ATTEMPT, cohort=()) if last.status == "open" else None,
        tasks=tasks,
        buffer=buffer,
        rejected=frozenset(spent["rejected"]),
        declined=frozenset(spent["declined"]),
    )
