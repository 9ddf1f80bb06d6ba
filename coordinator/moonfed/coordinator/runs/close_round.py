"""Reduces a closed round: its spooled updates become the next global state, durable blobs, and the round's record."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import sqlalchemy as sql

from moonfed.blobs import BlobRef, ref_of_file
from moonfed.coordinator.aggregation.aggregate import aggregate
from moonfed.coordinator.aggregation.closed_round import ClosedRound, Contribution
from moonfed.coordinator.aggregation.robust.incident import Incident
from moonfed.coordinator.aggregation.staleness import discounted
from moonfed.coordinator.records import AttemptId, DeviceReport, attempt_id
from moonfed.coordinator.rounds.events import Damaged, Reduce, ReductionFailed
from moonfed.coordinator.rounds.settings import RunSettings
from moonfed.coordinator.runs.global_state import GlobalStates
from moonfed.coordinator.runs.metric_means import holdout_metrics, train_metrics
from moonfed.coordinator.storage.opening import Storage
from moonfed.coordinator.storage.transient_errors import as_transient
from moonfed.coordinator.updates.codec import encode_global_model
from moonfed.encodings import ENCODED_MODEL
from moonfed.errors import MoonfedError, NotFound, WrongState
from moonfed.files import sync_file
from moonfed.manifest import MODEL, Manifest

_log = logging.getLogger(__name__)
HASHED_AT_ONCE = 4


class DamagedUpdates(Exception):
    """Spooled updates are not what was acknowledged; `devices` delivered them."""

    def __init__(self, devices: Sequence[str]) -> None:
        super().__init__(f"the spooled updates of {', '.join(devices)} were damaged on the coordinator's disk")
        self.devices = tuple(devices)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduction:
    """The outcome of a round."""

    devices: tuple[str, ...]  # whose updates are in it
    blobs: Mapping[str, BlobRef]  # the new global state, by role: the model, and what the next round needs beside it
    incidents: tuple[Incident, ...]  # what the run's robust aggregation did
    metrics: dict[str, float]  # of the round's training
    holdout: dict[str, float]  # of the global model that the round began with, on the devices' held-out samples


def close_round(
    storage: Storage,
    run: str,
    command: Reduce,
    manifest: Manifest,
    settings: RunSettings,
    *,
    standings: GlobalStates,
) -> Reduction | Damaged | ReductionFailed:
    """Reduces a round and records it durably; the event that comes of it instead if that cannot be done. Blocking.

    `standings`: what the round's devices were given.
    """
    attempt = attempt_id(run, command)
    try:
        command = with_all_receipts(storage, command, attempt)
        reduction = reduce_round(storage, attempt, command, manifest, settings, standings=standings)
        released = _commit(storage, attempt, command, reduction, settings)
    except DamagedUpdates as error:
        return Damaged(round=command.round, attempt=command.attempt, devices=error.devices)
    except Exception as error:
        return _failed(error, attempt)
    finally:
        storage.pins.drop(attempt)
    storage.garbage_collector.collect(released)
    if command.bases:  # the attempt stays, for those who are at work with its model
        shutil.rmtree(storage.spool.reduced_directory(attempt), ignore_errors=True)
    for device, base in command.bases.items():
        storage.spool.delete_update(replace(attempt, round=base), device)
    return reduction


def _failed(error: Exception, attempt: AttemptId) -> ReductionFailed:
    if passing := as_transient(error):
        _log.error("%s cannot be reduced at present, and is tried again: %s", attempt, passing)
        return ReductionFailed(round=attempt.round, attempt=attempt.attempt, reason=str(passing), passing=True)
    _log.error("%s cannot be reduced", attempt, exc_info=error)
    told = isinstance(error, MoonfedError)
    reason = str(error) if told else "the updates could not be reduced; the coordinator's log says more"
    return ReductionFailed(round=attempt.round, attempt=attempt.attempt, reason=reason)


def with_all_receipts(storage: Storage, command: Reduce, attempt: AttemptId) -> Reduce:
    """The command for all updates that got a receipt, perhaps from a replica that has not told yet."""
    if command.bases:  # an asynchronous round counts some; the others stay for the next one
        return command
    taken = (report.device for report in storage.store.reports.of_attempt(attempt) if report.outcome == "accepted")
    return replace(command, devices=tuple(taken))


def _commit(
    storage: Storage, attempt: AttemptId, command: Reduce, reduction: Reduction, settings: RunSettings
) -> list[BlobRef]:
    """Records the round; the blobs that are not needed any more."""
    try:
        return storage.store.commit_round(
            attempt,
            command.devices,
            reduction.blobs,
            metrics=reduction.metrics,
            metrics_before=reduction.holdout,
            incidents=reduction.incidents,
            bases=command.bases,
            retention=settings.retention,
            needed=settings.states_needed,
        )
    except (sql.exc.OperationalError, WrongState):
        # The connection may have broken after the commit and before its confirmation, now or at an earlier try.
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
    standings: GlobalStates,
) -> Reduction:
    """What the bundle's rules and the run's robust aggregation make of the devices' updates, in their order.

    Raises DamagedUpdates, naming all of them, or Corrupt if the global state that the round began with is damaged.
    """
    counted = _counted(storage, attempt, command)
    if damaged := _damaged(storage, counted):
        raise DamagedUpdates(damaged)
    directory = storage.spool.reduced_directory(attempt)
    directory.mkdir(parents=True, exist_ok=True)
    closed = ClosedRound(
        manifest=manifest,
        round=attempt.round,
        seed=settings.seed,
        enrolled=max(storage.store.devices.count(), len(counted)),
        global_state={role: storage.blobs.verified_path(ref) for role, ref in standings[attempt.round].blobs.items()},
        contributions=tuple(_contribution(storage, report) for report in counted),
        robust=settings.robust,
    )
    closed = _discounted(storage, closed, counted, standings, directory)
    aggregated = aggregate(closed, directory)
    model, encoded = aggregated.files[MODEL], directory / ENCODED_MODEL
    files = {**aggregated.files, **encode_global_model(model, encoded, manifest, settings.encodings.down)}
    return Reduction(
        devices=command.devices,
        blobs={role: _keep(storage, attempt, path) for role, path in files.items()},
        incidents=aggregated.incidents,
        metrics=train_metrics(counted),
        holdout=holdout_metrics([report for report in counted if report.id == attempt]),  # others scored older models
    )


def _counted(storage: Storage, attempt: AttemptId, command: Reduce) -> list[DeviceReport]:
    """The answers with the devices' updates."""
    named = {device: replace(attempt, round=command.bases.get(device, attempt.round)) for device in command.devices}
    reports = {
        (report.id, report.device): report
        for begun in set(named.values())
        for report in storage.store.reports.of_attempt(begun)
    }
    return [reports[begun, device] for device, begun in named.items()]


def _discounted(
    storage: Storage, closed: ClosedRound, reports: Sequence[DeviceReport], standings: GlobalStates, directory: Path
) -> ClosedRound:
    """The round with every update as if it had begun with the newest global model, by FedBuff's weights."""
    newest, stale = closed.global_state[MODEL], {report.id.round for report in reports} - {closed.round}
    bases = {round_: storage.blobs.verified_path(standings[round_].blobs[MODEL]) for round_ in stale}
    contributions = (
        discounted(
            contribution,
            closed.round - report.id.round,
            closed.manifest,
            begun_with=bases.get(report.id.round, newest),
            newest=newest,
            target=directory / f"from-{report.device}",
        )
        for contribution, report in zip(closed.contributions, reports, strict=True)
    )
    return replace(closed, contributions=tuple(contributions))


def _contribution(storage: Storage, report: DeviceReport) -> Contribution:
    files = {role: storage.spool.update_file(report.id, report.device, role) for role in report.blobs}
    return Contribution(device=report.device, files=files, samples=report.samples, steps=report.steps)


def _keep(storage: Storage, attempt: AttemptId, path: Path) -> BlobRef:
    """Makes a file a durable blob, which the attempt's commit will refer to."""
    sync_file(path)
    ref = ref_of_file(path)
    storage.pins.add(attempt, [ref.sha256])
    storage.blobs.put_file(path, ref)
    return ref


def _damaged(storage: Storage, reports: Sequence[DeviceReport]) -> list[str]:
    """The devices whose spooled files are not what was acknowledged."""
    with ThreadPoolExecutor(HASHED_AT_ONCE) as threads:  # the one pass over all updates that takes the processor long
        whole = threads.map(lambda report: _is_whole(storage, report), reports)
        return [report.device for report, is_whole in zip(reports, whole, strict=True) if not is_whole]


def _is_whole(storage: Storage, report: DeviceReport) -> bool:
    try:
        return all(storage.spool.holds(report.id, report.device, role, ref) for role, ref in report.spooled.items())
    except (OSError, NotFound) as error:  # gone, or on a bad sector
        if as_transient(error):  # no room to fetch it to
            raise
        return False
