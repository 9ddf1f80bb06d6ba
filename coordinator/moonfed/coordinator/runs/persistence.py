"""Makes durable what a run's commands decide, before anybody sees it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress

from moonfed.coordinator.records import DeviceReport, attempt_id
from moonfed.coordinator.rounds.events import Abandon, Command, Discard, End, Join, Open, Reduce
from moonfed.coordinator.storage.store import Store
from moonfed.coordinator.support.error_log import log_error

_log = logging.getLogger(__name__)
TROUBLE_SECONDS = 5.0  # between attempts to keep what must be kept, such as while the disk is full
REASONS_SHOWN = 3  # the log has them all


class CommandRecorder:
    """Keeps what one run's commands decide."""

    def __init__(self, store: Store, run: str) -> None:
        self._store, self._run = store, run
        self._closed = asyncio.Event()

    async def keep(self, commands: Sequence[Command]) -> None:
        """Tries until all is durable, as nobody would send a timer's event again; raises what is wrong once closed."""
        while commands and not await asyncio.to_thread(self._kept, commands):
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._closed.wait(), TROUBLE_SECONDS)

    @property
    def closed(self) -> bool:
        """Whether nothing more is decided here."""
        return self._closed.is_set()

    def close(self) -> None:
        """The coordinator stops, or another one drives the run."""
        self._closed.set()

    def _kept(self, commands: Sequence[Command]) -> bool:
        try:
            for command in commands:
                keep(self._store, self._run, command)
        except Exception as error:
            if self._closed.is_set():
                raise
            log_error(_log, f"run {self._run!r} cannot go on; trying again in {TROUBLE_SECONDS:g} s", error)
            return False
        return True


def keep(store: Store, run: str, command: Command) -> None:
    """Records a command's outcome. Blocking."""
    match command:
        case Open():
            store.open_round(attempt_id(run, command), command.cohort)
        case Join():
            store.join_round(attempt_id(run, command), command.device)
        case Reduce() if not command.bases:  # from here on this round gives no receipts: all that it gave are reduced
            store.begin_reducing(attempt_id(run, command))
        case Abandon():
            attempt = attempt_id(run, command)
            store.abandon_round(attempt, with_reasons(command.reason, store.reports.of_attempt(attempt)))
        case Discard():
            store.reports.replace(discarded(run, command))
        case End():
            store.end_run(run, command.status)


def with_reasons(why: str, reports: Sequence[DeviceReport]) -> str:
    """Why a round was abandoned, with the first of the reasons that devices gave or were given."""
    given = [f"{report.device}: {report.reason}" for report in reports if report.reason]
    rest = f"; and {len(given) - REASONS_SHOWN} more" if len(given) > REASONS_SHOWN else ""
    return "; ".join([why, *given[:REASONS_SHOWN]]) + rest


def discarded(run: str, command: Discard) -> DeviceReport:
    """The answer that stands in place of a device's damaged one."""
    reason = "the coordinator's copy of it is damaged or gone"
    return DeviceReport(id=attempt_id(run, command), device=command.device, outcome="refused", reason=reason)
