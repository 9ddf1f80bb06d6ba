"""What an operator sees of a run, put together from the store and the state machine."""

from __future__ import annotations

from coordinator.records import RunRecord, RunView
from coordinator.rounds import sentences
from coordinator.rounds.state import OpenRound, State
from coordinator.storage.store import Store


def run_view(store: Store, record: RunRecord, state: State | None) -> RunView:
    """A run with its rounds; `state` is absent once the run has ended. Blocking."""
    past = tuple(found for found in store.rounds(record.run) if found.status != "open")
    committed = [found for found in past if found.status == "committed"]
    current = state.open if state else None
    if current and any((found.id.round, found.id.attempt) == (current.round, current.attempt) for found in past):
        current = None  # ended a moment ago, the state machine is just being told
    return RunView(
        record=record,
        rounds=past,
        open_round=current,
        waiting=sentences.waiting(record.settings, state) if state else "",
        metrics=store.metrics(record.run),
        committed=len(committed),
        model=committed[-1].model if committed else record.initial,
    )


def recovered_state(store: Store, run: str) -> State:
    """Where a run stood when the coordinator ended, in the middle of a round or between two."""
    past = store.rounds(run)
    committed = sum(found.status == "committed" for found in past)
    attempts = [found for found in past if found.id.round == committed + 1]
    if not attempts:
        return State(committed=committed)
    last = attempts[-1]
    if last.status != "open":
        return State(committed=committed, attempt=last.id.attempt + 1)
    answers = store.answers(last.id)
    devices = {
        outcome: frozenset(answer.device for answer in answers if answer.outcome == outcome)
        for outcome in ("accepted", "refused", "declined")
    }
    current = OpenRound(
        round=last.id.round,
        attempt=last.id.attempt,
        cohort=last.cohort,
        reported=devices["accepted"],
        refused=devices["refused"],
        declined=devices["declined"],
    )
    return State(committed=committed, attempt=last.id.attempt, open=current)
