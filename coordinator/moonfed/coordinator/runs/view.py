"""What an operator sees of a run, put together from the store and the state machine."""

from __future__ import annotations

from collections.abc import Mapping

from moonfed.coordinator.records import RunRecord, RunView, attempt_id
from moonfed.coordinator.rounds import status_text
from moonfed.coordinator.rounds.protocol import round_protocol
from moonfed.coordinator.rounds.state import OpenRound, State
from moonfed.coordinator.storage.rounds import UNDER_WAY
from moonfed.coordinator.storage.store import Store


def run_view(
    store: Store,
    record: RunRecord,
    state: State | None,
    misfits: Mapping[str, str] = status_text.NOT_KNOWN,
    silence: Mapping[str, float] = status_text.NOT_KNOWN,
) -> RunView:
    """A run; `state` is absent once the run has ended. `misfits` and `silence`: see `sentences.waiting`. Blocking."""
    newest = store.latest_round(record.run, "committed")
    return RunView(
        record=record,
        open_round=_open_round(store, record.run, state.open) if state and state.open else None,
        waiting=round_protocol(record.settings).waiting(record.settings, state, misfits, silence) if state else "",
        initial_metrics=store.metrics(record.run, 0),
        committed=newest.id.round if newest else 0,
        model=newest.model if newest else record.initial,
    )


def _open_round(store: Store, run: str, current: OpenRound) -> OpenRound | None:
    """The round unless it ended a moment ago, of which the state machine is just being told."""
    found = store.round(attempt_id(run, current))
    return current if found and found.status in UNDER_WAY else None
