"""The operators' view of a run, from the store and the state machine."""

from __future__ import annotations

import time
from collections.abc import Mapping

from moonfed.coordinator.records import RoundRecord, RunRecord, RunView, attempt_id
from moonfed.coordinator.rounds import status_text
from moonfed.coordinator.rounds.protocol import round_protocol
from moonfed.coordinator.rounds.state import OpenRound, State
from moonfed.coordinator.storage.rounds import UNDER_WAY
from moonfed.coordinator.storage.store import Store


def run_view(
    store: Store,
    record: RunRecord,
    state: State | None,
    ineligible: Mapping[str, str] = status_text.NOT_KNOWN,
    silence: Mapping[str, float] = status_text.NOT_KNOWN,
    progress: Mapping[str, float] = status_text.NOT_KNOWN,
) -> RunView:
    """Build the view of a run; `state` is None once it has ended. Blocking.

    `ineligible` and `silence`: see `status_text.waiting`; `progress`: see `RunView`.
    """
    newest = store.latest_round(record.run, "committed")
    under_way = _under_way(store, record.run, state.open) if state and state.open else None
    return RunView(
        record=record,
        open_round=state.open if state and under_way else None,
        waiting=round_protocol(record.settings).waiting(record.settings, state, ineligible, silence) if state else "",
        initial_metrics=store.metrics(record.run, 0),
        clipped={device: number for device, number in store.clipped_in_a_row(record.run).items() if number > 1},
        committed=newest.id.round if newest else 0,
        model=newest.model if newest else record.initial,
        open_seconds=max(0.0, time.time() - under_way.opened) if under_way else 0.0,
        progress=progress,
        reasons=_reasons(store, record.run, state.open) if state and state.open and under_way else {},
    )


def _reasons(store: Store, run: str, current: OpenRound) -> dict[str, str]:
    """Return the reasons of the devices that were rejected or declined."""
    if not (current.rejected or current.declined):
        return {}
    reports = store.reports.of_attempt(attempt_id(run, current))
    return {report.device: report.reason for report in reports if report.reason}


def _under_way(store: Store, run: str, current: OpenRound) -> RoundRecord | None:
    """Return the round's record, unless it has just ended and the state machine has yet to learn of it."""
    found = store.round(attempt_id(run, current))
    return found if found and found.status in UNDER_WAY else None
