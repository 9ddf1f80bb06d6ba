"""Reduces a closed round: its spooled updates become the next global state, durable blobs, and the round's record."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import sqlalchemy as sql

from moonfed.blobs.store import BlobRef, ref_of_file
from moonfed.bundle.manifest import MODEL, Manifest
from moonfed.control.privacy import GAUSSIAN
from moonfed.control.run_settings import RunSettings
from moonfed.coordinator.aggregation.aggregate import Aggregated, aggregate
from moonfed.coordinator.aggregation.closed_round import ClosedRound, Contribution
from moonfed.coordinator.aggregation.robust.incident import Incident
from moonfed.coordinator.aggregation.staleness import discounted
from moonfed.coordinator.devices.eligibility import clipped_text
from moonfed.coordinator.privacy.budget import private_round
from moonfed.coordinator.privacy.ledger_entry import LedgerEntry
from moonfed.coordinator.records import (
    NOT_MEASURED,
    AttemptId,
    AttemptMeasurements,
    DeviceReport,
    attempt_id,
)
from moonfed.coordinator.rounds.events import Damaged, Reduce, ReductionFailed
from moonfed.coordinator.rounds.phases import Moments, phase_seconds
from moonfed.coordinator.rounds.retention import Retention
from moonfed.coordinator.rounds.sizes import states_needed, updates_closing
from moonfed.coordinator.runs.global_state import GlobalStates
from moonfed.coordinator.runs.metric_means import holdout_metrics, train_metrics
from moonfed.coordinator.runs.persistence import with_received
from moonfed.coordinator.storage.opening import Storage
from moonfed.coordinator.storage.transient_errors import as_transient
from moonfed.coordinator.updates.codec import encode_global_model
from moonfed.encodings import ENCODED_MODEL
from moonfed.errors import MoonfedError, NotFound, WrongState
from moonfed.files import sync_file
from moonfed.observability.tracing import span

_log = logging.getLogger(__name__)
HASHED_AT_ONCE = 4


class DamagedUpdates(Exception):
    """Spooled updates of these `devices` differ from the acknowledged ones."""

    def __init__(self, devices: Sequence[str]) -> None:
        super().__init__(f"the spooled updates of {', '.join(devices)} were damaged on the coordinator's disk")
        self.devices = tuple(devices)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundResult:
    """The outcome of a reduced round."""

    devices: tuple[str, ...]  # whose updates it contains
    blobs: Mapping[str, BlobRef]  # the new global state, by role: the model, and what else the next round needs
    incidents: tuple[Incident, ...]  # found by the run's robust aggregation
    excluded: tuple[str, ...]  # devices that no further round is to include
    metrics: dict[str, float]  # of the round's training
    holdout: dict[str, float]  # of the global model that the round started from, on the devices' held-out samples
    received: tuple[DeviceReport, ...]  # those of the updates that no earlier attempt has received
    release: LedgerEntry | None  # of a run with privacy, to be charged
    reduced: float  # when the model was computed, by the monotonic clock


def close_round(
    storage: Storage,
    run: str,
    command: Reduce,
    manifest: Manifest,
    settings: RunSettings,
    *,
    global_states: GlobalStates,
    moments: Moments | None = None,
    measured: AttemptMeasurements = NOT_MEASURED,
) -> RoundResult | Damaged | ReductionFailed:
    """Reduce a round and record it durably; or return the event of the failure. Blocking.

    `global_states`: the states that the round's devices started from. `moments`: by the monotonic clock, until the
    round closed. `measured`: the rest of the round's figures.
    """
    attempt = attempt_id(run, command)
    try:
        command = with_all_receipts(storage, command, attempt)
        with span("reduction", updates=len(command.devices)):
            result = reduce_round(storage, attempt, command, manifest, settings, global_states=global_states)
        measured = with_received(replace(measured, phases=_phases(moments, result)), result.received)
        with span("commit"):
            released = _commit(storage, attempt, command, result, settings, measured)
    except DamagedUpdates as error:
        return Damaged(round=command.round, attempt=command.attempt, devices=error.devices)
    except Exception as error:
        return _failed(error, attempt)
    finally:
        storage.pins.drop(attempt)
    storage.garbage_collector.collect(released)
    if command.bases:  # the attempt stays: devices are still training with its model
        shutil.rmtree(storage.spool.reduced_directory(attempt), ignore_errors=True)
    for device, base in command.bases.items():
        storage.spool.delete_update(replace(attempt, round=base), device)
    return result


def _failed(error: Exception, attempt: AttemptId) -> ReductionFailed:
    if unavailable := as_transient(error):
        _log.error("reduction of %s failed; retrying: %s", attempt, unavailable)
        return ReductionFailed(round=attempt.round, attempt=attempt.attempt, reason=str(unavailable), transient=True)
    _log.error("reduction of %s failed", attempt, exc_info=error)
    unexpected = f"the updates could not be reduced: {error!r}; see the coordinator's log"
    reason = str(error) if isinstance(error, MoonfedError) else unexpected
    return ReductionFailed(round=attempt.round, attempt=attempt.attempt, reason=reason)


def with_all_receipts(storage: Storage, command: Reduce, attempt: AttemptId) -> Reduce:
    """Extend the command to every update with a receipt, some of which other replicas may have issued."""
    if command.bases:  # an asynchronous round counts these; others wait for the next one
        return command
    accepted = {report.device for report in storage.store.reports.of_attempt(attempt) if report.outcome == "accepted"}
    return replace(command, devices=tuple(sorted(accepted | command.reused.keys())))


def _phases(moments: Moments | None, result: RoundResult) -> dict[str, float]:
    """Return the round's seconds by phase until now, before its record is durable."""
    if moments is None:
        return {}
    return phase_seconds(replace(moments, reduced=result.reduced, ended=time.monotonic()))


def _commit(
    storage: Storage,
    attempt: AttemptId,
    command: Reduce,
    result: RoundResult,
    settings: RunSettings,
    measured: AttemptMeasurements,
) -> list[BlobRef]:
    """Record the round; return the blobs that are no longer needed."""
    try:
        return storage.store.commit_round(
            attempt,
            command.devices,
            result.blobs,
            metrics=result.metrics,
            metrics_before=result.holdout,
            incidents=result.incidents,
            bases=command.bases,
            reused=command.reused,
            retention=Retention.of(settings),
            needed=states_needed(settings),
            measured=measured,
            release=result.release,
        )
    except (sql.exc.OperationalError, WrongState):
        # The connection may have broken after the commit and before its confirmation, now or in an earlier attempt.
        found = storage.store.round(attempt)
        if found is None or found.status != "committed":
            raise
        return []


def reduce_round(
    storage: Storage,
    attempt: AttemptId,
    command: Reduce,
    manifest: Manifest,
    settings: RunSettings,
    *,
    global_states: GlobalStates,
) -> RoundResult:
    """Reduce the devices' updates, in their order, by the bundle's rules and the run's robust aggregation.

    Raises DamagedUpdates, naming all of them, or Corrupt if the global state that the round started from is damaged.
    """
    counted = _counted(storage, attempt, command)
    if damaged := _damaged(storage, counted):
        raise DamagedUpdates(damaged)
    directory = storage.spool.reduced_directory(attempt)
    directory.mkdir(parents=True, exist_ok=True)
    base = global_states[attempt.round]
    closed = ClosedRound(
        manifest=manifest,
        round=attempt.round,
        draw=storage.store.draw(attempt.run),
        enrolled=max(storage.store.devices.count(), len(counted)),
        global_state={role: storage.blobs.verified_path(ref) for role, ref in base.blobs.items()},
        contributions=tuple(_contribution(storage, report) for report in counted),
        cohort=_cohort_size(storage, attempt, settings),
        settings=settings,
        global_sha256=base.blobs[MODEL].sha256,
        privacy=private_round(settings, attempt.attempt, base.clip_norm),
    )
    closed = _discounted(storage, closed, counted, global_states, directory)
    aggregated = aggregate(closed, directory)
    model, encoded = aggregated.files[MODEL], directory / ENCODED_MODEL
    files = {**aggregated.files, **encode_global_model(model, encoded, manifest, settings.encodings.down)}
    reduced = time.monotonic()
    excluded = _excluded(storage, attempt.run, aggregated.incidents, settings.exclude_after)
    return RoundResult(
        devices=command.devices,
        blobs={role: _put_blob(storage, attempt, path) for role, path in files.items()},
        incidents=(*aggregated.incidents, *(_exclusion(device, settings.exclude_after) for device in excluded)),
        excluded=excluded,
        metrics=train_metrics(counted, {manifest.metric.name, *settings.target_metrics}),
        # Others scored older models.
        holdout=holdout_metrics([report for report in counted if report.id.round == attempt.round]),
        release=_release(storage, attempt, closed, aggregated),
        received=tuple(report for report in counted if report.device not in command.reused),
        reduced=reduced,
    )


def _release(storage: Storage, attempt: AttemptId, closed: ClosedRound, aggregated: Aggregated) -> LedgerEntry | None:
    """Return what a round with privacy is charged for."""
    privacy, release = closed.privacy, aggregated.release
    if privacy is None or release is None:
        return None
    return LedgerEntry(
        run=attempt.run,
        created=storage.store.run(attempt.run).created,
        round=attempt.round,
        attempt=attempt.attempt,
        mechanism=GAUSSIAN,
        delta=float(closed.settings.privacy["delta"]),
        sampling_rate=privacy.sampling_rate,
        noise_multiplier=privacy.noise_multiplier,
        clip_norm=privacy.clip,
        next_clip_norm=release.next_clip,
        updates_digest=release.updates_digest,
    )


def _excluded(storage: Storage, run: str, incidents: Sequence[Incident], after: int) -> tuple[str, ...]:
    """Return the devices that this round clips for the `after`-th time in a row, or more."""
    if not after:
        return ()
    before = storage.store.clipped_in_a_row(run)
    clipped = sorted({incident.device for incident in incidents if incident.clipped})
    return tuple(device for device in clipped if before.get(device, 0) + 1 >= after)


def _exclusion(device: str, after: int) -> Incident:
    return Incident(device=device, description=f"it takes part in no further round: {clipped_text(after)}")


def _cohort_size(storage: Storage, attempt: AttemptId, settings: RunSettings) -> int:
    """Return the number of updates that the round was to close with, however many devices are missing."""
    found = storage.store.round(attempt)
    assert found  # noqa: S101 - our own invariant
    return updates_closing(settings, len(found.cohort), len(found.replacements))


def _counted(storage: Storage, attempt: AttemptId, command: Reduce) -> list[DeviceReport]:
    """Return the receipts of the devices' updates."""
    named = {device: trained_attempt(attempt, command, device) for device in command.devices}
    reports = {
        (report.id, report.device): report
        for begun in set(named.values())
        for report in storage.store.reports.of_attempt(begun)
    }
    return [reports[begun, device] for device, begun in named.items()]


def trained_attempt(attempt: AttemptId, command: Reduce, device: str) -> AttemptId:
    """Return the attempt in which a device trained the update that this attempt's reduction counts."""
    return replace(
        attempt,
        round=command.bases.get(device, attempt.round),
        attempt=command.reused.get(device, attempt.attempt),
    )


def _discounted(
    storage: Storage, closed: ClosedRound, reports: Sequence[DeviceReport], global_states: GlobalStates, directory: Path
) -> ClosedRound:
    """Rebase every update on the newest global model, discounted by FedBuff's weights."""
    newest, stale = closed.global_state[MODEL], {report.id.round for report in reports} - {closed.round}
    bases = {round_: storage.blobs.verified_path(global_states[round_].blobs[MODEL]) for round_ in stale}
    contributions = (
        discounted(
            contribution,
            closed.round - report.id.round,
            closed.manifest,
            initial_model=bases.get(report.id.round, newest),
            newest=newest,
            target=directory / f"from-{report.device}",
        )
        for contribution, report in zip(closed.contributions, reports, strict=True)
    )
    return replace(closed, contributions=tuple(contributions))


def _contribution(storage: Storage, report: DeviceReport) -> Contribution:
    files = {role: storage.spool.update_file(report.id, report.device, role) for role in report.blobs}
    sha256 = report.spooled[MODEL].sha256
    return Contribution(device=report.device, files=files, samples=report.samples, steps=report.steps, sha256=sha256)


def _put_blob(storage: Storage, attempt: AttemptId, path: Path) -> BlobRef:
    """Make a file a durable blob, pinned until the attempt's commit refers to it."""
    sync_file(path)
    ref = ref_of_file(path)
    storage.pins.add(attempt, [ref.sha256])
    storage.blobs.put_file(path, ref)
    return ref


def _damaged(storage: Storage, reports: Sequence[DeviceReport]) -> list[str]:
    """Return the devices whose spooled files differ from their receipts."""
    with ThreadPoolExecutor(HASHED_AT_ONCE) as threads:  # hashing is the only CPU-bound pass over all updates
        whole = threads.map(lambda report: _is_whole(storage, report), reports)
        return [report.device for report, is_whole in zip(reports, whole, strict=True) if not is_whole]


def _is_whole(storage: Storage, report: DeviceReport) -> bool:
    try:
        return all(storage.spool.holds(report.id, report.device, role, ref) for role, ref in report.spooled.items())
    except (OSError, NotFound) as error:  # missing, or on a bad sector
        if as_transient(error):  # no space to fetch it to
            raise
        return False
