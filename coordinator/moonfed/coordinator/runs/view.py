"""The operators' view of a run, from the store and the state machine."""

from __future__ import annotations

import time
from collections.abc import Mapping

from moonfed.control.runs import OpenRound, Run
from moonfed.coordinator.privacy.budget import spent
from moonfed.coordinator.records import RoundRecord, RunRecord, attempt_id
from moonfed.coordinator.rounds import state, status_text
from moonfed.coordinator.rounds.protocol import round_protocol
from moonfed.coordinator.rounds.sizes import updates_closing
from moonfed.coordinator.rounds.state import State
from moonfed.coordinator.storage.rounds import UNDER_WAY
from moonfed.coordinator.storage.store import Store
from moonfed.formatting import moment


def run_view(
    store: Store,
    record: RunRecord,
    now: State | None,
    ineligible: Mapping[str, str] = status_text.NOT_KNOWN,
    silence: Mapping[str, float] = status_text.NOT_KNOWN,
    progress: Mapping[str, float] = status_text.NOT_KNOWN,
) -> Run:
    """Build the view of a run; `now` is its state, None once it has ended. Blocking.

    `ineligible` and `silence`: see `status_text.waiting`; `progress`: see `OpenRound`.
    """
    newest = store.latest_round(record.run, "committed")
    under_way = _under_way(store, record.run, now.open) if now and now.open else None
    return Run(
        run=record.run,
        status=record.status,
        method=record.method,
        metric=record.metric,
        round=newest.id.round if newest else 0,
        waiting=round_protocol(record.settings).waiting(record.settings, now, ineligible, silence) if now else "",
        reason=record.reason,
        created=moment(record.created),
        model=(newest.model if newest else None) or record.initial,
        initial_model=record.initial,
        manifest=record.manifest,
        signature=record.signature,
        clipped={device: number for device, number in store.clipped_in_a_row(record.run).items() if number > 1},
        initial_metrics=store.metrics(record.run, 0),
        open_round=_open_round(store, record, now.open, under_way, progress)
        if now and now.open and under_way
        else None,
        privacy=spent(record.settings, store.privacy.of_run(record)) if record.settings.private else None,
        settings=record.settings,
    )


def _open_round(
    store: Store, record: RunRecord, current: state.OpenRound, under_way: RoundRecord, progress: Mapping[str, float]
) -> OpenRound:
    return OpenRound(
        round=current.round,
        attempt=current.attempt,
        cohort=tuple(current.cohort),
        reported=tuple(sorted(current.reported)),
        rejected=tuple(sorted(current.rejected)),
        declined=tuple(sorted(current.declined)),
        lost=tuple(sorted(current.lost)),
        left=tuple(sorted(current.left)),
        replacements=tuple(sorted(current.replacements)),
        seconds=max(0.0, time.time() - under_way.opened),
        target=updates_closing(record.settings, len(current.cohort), len(current.replacements)),
        progress=progress,
        reasons=_reasons(store, record.run, current),
    )


def _reasons(store: Store, run: str, current: state.OpenRound) -> dict[str, str]:
    """Return the reasons of the devices that were rejected or declined."""
    if not (current.rejected or current.declined):
        return {}
    reports = store.reports.of_attempt(attempt_id(run, current))
    return {report.device: report.reason for report in reports if report.reason}


def _under_way(store: Store, run: str, current: state.OpenRound) -> RoundRecord | None:
    """Return the round's record, unless it has just ended and the state machine has yet to learn of it."""
    found = store.round(attempt_id(run, current))
    return found if found and found.status in UNDER_WAY else None
