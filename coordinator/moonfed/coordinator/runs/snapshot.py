"""Snapshots of a run in the database, and the events that lead from one to the next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from moonfed.control import events
from moonfed.control.events import RunEvent
from moonfed.coordinator.records import AttemptId, DeviceReport, RoundRecord, RunRecord, attempt_id
from moonfed.coordinator.rounds.state import NOBODY, OpenRound, State
from moonfed.coordinator.storage.recovery import recovered_state
from moonfed.coordinator.storage.rounds import UNDER_WAY
from moonfed.coordinator.storage.store import Store
from moonfed.coordinator.updates.receipts import shown_event

PAST_AT_ONCE = 100  # rounds published at once after a follower was disconnected for long


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSnapshot:
    """One snapshot. `past`: the rounds that ended since the one before; `newest_past`: the last round that ended."""

    record: RunRecord
    state: State
    reports: Mapping[str, DeviceReport] = field(default_factory=dict)  # by device, in the open round
    past: Sequence[RoundRecord] = ()
    newest_past: AttemptId | None = None


def read_snapshot(store: Store, run: str, before: RunSnapshot | None) -> RunSnapshot:
    """Read the run's current state; raises NotFound if it was deleted. Blocking.

    The reads are not one transaction: the next snapshot shows what changes in between.
    """
    if before is None:
        newest_past, past = _newest_past(store, run), list[RoundRecord]()
    else:
        past = store.past_rounds(run, before.newest_past, PAST_AT_ONCE)
        newest_past = past[-1].id if past else before.newest_past
    state, record = recovered_state(store, run), store.run(run)
    reports = store.reports.of_attempt(attempt_id(run, state.open)) if state.open else []
    return RunSnapshot(
        record=record,
        state=state,
        reports={report.device: report for report in reports},
        past=past,
        newest_past=newest_past,
    )


def events_between(before: RunSnapshot, after: RunSnapshot) -> Iterator[RunEvent]:
    """Yield the events that led from one snapshot to the next."""
    for ended in after.past:
        yield from _ended(ended)
    if after.record.active and before.state.paused != after.state.paused:
        yield events.Paused() if after.state.paused else events.Resumed()
    current = after.state.open
    if current is None:
        return
    opens = before.state.open is None or _attempt(before.state.open) != _attempt(current)
    joined = tuple(sorted(current.replacements - (before.state.open.replacements if before.state.open else NOBODY)))
    if opens:
        yield events.RoundOpened(
            round=current.round,
            attempt=current.attempt,
            cohort=current.cohort,
            reused=tuple(sorted(current.reused)),
        )
    elif joined:
        yield events.DevicesJoined(round=current.round, attempt=current.attempt, devices=joined)
    known = {} if opens else before.reports
    for device, report in after.reports.items():
        if device not in known or known[device].outcome != report.outcome:
            yield shown_event(report, len(current.outstanding))


def _ended(found: RoundRecord) -> Iterator[RunEvent]:
    round_, attempt = found.id.round, found.id.attempt
    if found.status == "abandoned":
        yield events.RoundAbandoned(round=round_, attempt=attempt, missing=found.missing, reason=found.reason)
        return
    yield events.RoundCommitted(
        round=round_, attempt=attempt, counted=found.counted, model=found.model, metrics=found.metrics
    )
    if found.metrics:
        yield events.MetricsRecorded(round=round_, metrics=found.metrics)


def _newest_past(store: Store, run: str) -> AttemptId | None:
    last = store.latest_round(run)
    if last is None or last.status not in UNDER_WAY:
        return last.id if last else None
    return AttemptId(run=run, round=last.id.round, attempt=last.id.attempt - 1)


def _attempt(current: OpenRound) -> tuple[int, int]:
    return current.round, current.attempt
