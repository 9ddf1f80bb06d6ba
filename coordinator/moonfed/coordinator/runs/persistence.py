"""Persistence of a run's commands: each is durable before its effect is visible."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from moonfed.coordinator.records import NOT_MEASURED, AttemptMeasurements, DeviceReport, attempt_id
from moonfed.coordinator.rounds.events import (
    Abandon,
    Command,
    Discard,
    End,
    Join,
    Open,
    Reduce,
    Replace,
    SetPaused,
)
from moonfed.coordinator.storage.leases import LeaseLost
from moonfed.coordinator.storage.store import Store
from moonfed.coordinator.support.error_log import log_error
from moonfed.formatting import count

_log = logging.getLogger(__name__)
RETRY_SECONDS = 5.0  # between attempts, for example while the disk is full
REASONS_SHOWN = 3  # the log has all of them


class CommandRecorder:
    """Recorder of one run's commands."""

    def __init__(self, store: Store, run: str) -> None:
        self._store, self._run = store, run
        self._closed = asyncio.Event()

    async def record(self, commands: Sequence[Command], measured: AttemptMeasurements = NOT_MEASURED) -> None:
        """Retry until all commands are durable, since a timer's event is not repeated; once closed, raise the error.

        `measured`: of the attempt that one of the commands abandons.
        Raises LeaseLost at once if another coordinator holds the run's lease. The caller holds the run's lock, for
        which the replica monitor may wait before it could close this recorder.
        """
        while commands and not await asyncio.to_thread(self._try, commands, measured):
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._closed.wait(), RETRY_SECONDS)

    @property
    def closed(self) -> bool:
        """True once the recorder is closed."""
        return self._closed.is_set()

    def close(self) -> None:
        """Stop retrying: the coordinator stops, or another one drives the run."""
        self._closed.set()

    def _try(self, commands: Sequence[Command], measured: AttemptMeasurements) -> bool:
        try:
            for command in commands:
                record(self._store, self._run, command, measured)
        except Exception as error:
            if self._closed.is_set() or self._lost(error):
                raise
            log_error(_log, f"run {self._run!r} cannot continue; retrying in {RETRY_SECONDS:g} s", error, run=self._run)
            return False
        return True

    def _lost(self, error: Exception) -> bool:
        return isinstance(error, LeaseLost) and self._store.leases.held_elsewhere(self._run)


def record(store: Store, run: str, command: Command, measured: AttemptMeasurements = NOT_MEASURED) -> None:
    """Record one command. Blocking."""
    match command:
        case Open():
            store.open_round(attempt_id(run, command), command.cohort, command.reused)
        case Join():
            store.join_round(attempt_id(run, command), command.device)
        case Replace():
            store.replace_devices(attempt_id(run, command), command.devices)
        case Reduce() if not command.bases:  # no receipts are issued from here on; all issued ones are reduced
            store.begin_reducing(attempt_id(run, command))
        case Abandon():
            attempt = attempt_id(run, command)
            reports = store.reports.of_attempt(attempt)
            why = with_reasons(command.reason, reports)
            store.abandon_round(attempt, why, command.reusable, with_received(measured, reports))
        case Discard():
            store.reports.replace(discarded(run, command))
        case SetPaused():
            store.set_paused(run, paused=command.paused)
        case End():
            store.end_run(run, command.status, failure_reason(store, run) if command.status == "failed" else "")


def with_reasons(why: str, reports: Sequence[DeviceReport]) -> str:
    """Return why a round was abandoned, with the first reasons of declined and rejected updates."""
    given = [f"{report.device}: {report.reason}" for report in reports if report.reason]
    rest = f"; and {len(given) - REASONS_SHOWN} more" if len(given) > REASONS_SHOWN else ""
    return "; ".join([why, *given[:REASONS_SHOWN]]) + rest


def with_received(measured: AttemptMeasurements, reports: Sequence[DeviceReport]) -> AttemptMeasurements:
    """Add the figures of the updates that an attempt has received."""
    return replace(
        measured,
        received_bytes=sum(ref.size for report in reports for ref in report.blobs.values()),
        personal_lost=sum(report.personal_lost for report in reports),
    )


def failure_reason(store: Store, run: str) -> str:
    """Return why a run has failed: the reason why its last attempt was abandoned."""
    last, settings = store.latest_round(run), store.run(run).settings
    if last is None:
        return ""
    tries = count(settings.max_attempts, "attempt")
    return f"{last.reason}; round {last.id.round} was given up after {tries} in a row"


def discarded(run: str, command: Discard) -> DeviceReport:
    """Return the report that replaces a device's damaged update."""
    reason = "the coordinator's copy is damaged or missing"
    return DeviceReport(id=attempt_id(run, command), device=command.device, outcome="rejected", reason=reason)
