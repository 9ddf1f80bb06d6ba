"""The replica monitor: heartbeats, leases, and polling for other replicas' changes.

Replicas communicate through the database only, which they poll a few times a second. A run is driven by its lease's
holder and followed by the others; a replica that finds a lease free acquires it and resumes as after a restart.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Coroutine, Mapping
from typing import Any, Protocol

from moonfed.coordinator.replicas.presence import Presence
from moonfed.coordinator.runs.handle import RunHandle
from moonfed.coordinator.storage.leases import LEASE_SECONDS as LEASE_SECONDS
from moonfed.coordinator.storage.leases import Leases
from moonfed.coordinator.storage.run_summaries import RunSummaries, RunSummary
from moonfed.coordinator.storage.store import Store
from moonfed.coordinator.support.error_log import log_error
from moonfed.coordinator.support.tasks import in_thread
from moonfed.errors import MoonfedError, VersionMismatch

HEARTBEATS = 5  # per lease duration, so that one or two may fail
POLL_SECONDS = 0.25
RETRY_SECONDS = 2.0  # between attempts while the database is unavailable
HEARTBEAT_EXCHANGE_SECONDS = 2.0  # between two exchanges of device heartbeats

_log = logging.getLogger(__name__)


class Runs(Protocol):
    """The runs of this coordinator, as `moonfed.coordinator.runs.manager` serves them."""

    @property
    def served(self) -> Mapping[str, RunHandle]:
        """The running runs, driven or followed."""

    @property
    def driven(self) -> Collection[str]:
        """Runs driven by this replica, suspended ones included."""

    async def drive(self, run: str) -> None:
        """Drive a run whose lease is ours, unless it is driven already or has ended."""

    async def follow(self, run: str) -> None:
        """Follow a run whose lease is another replica's."""


class ReplicaMonitor:
    """One replica's heartbeats and polling. Lives on one event loop."""

    def __init__(self, store: Store, runs: Runs, presence: Presence) -> None:
        self._online_devices = store.online_devices
        self._runs = runs
        self._presence = presence
        self._leases: Leases = store.leases
        self._run_summaries: RunSummaries = store.run_summaries
        self._seen: dict[str, RunSummary] = {}
        self._heartbeats_due = 0.0
        self._reported_problems: dict[str, str] = {}

    async def heartbeat(self) -> None:
        """Send a heartbeat and renew this replica's leases."""
        if not await in_thread(self._online_devices.heartbeat, LEASE_SECONDS):
            self._presence.republish()
        await in_thread(self._leases.renew, LEASE_SECONDS)

    async def poll(self) -> None:
        """Poll the database and act on the other replicas' changes."""
        changed = await self._presence.exchange()
        for device in changed:
            for served in list(self._runs.served.values()):
                await served.refresh(device)
        run_summaries = await in_thread(self._run_summaries.load)
        for run, summary in run_summaries.items():
            if not await self._handled(run, summary):
                run_summaries[run] = RunSummary(holder="")  # so that the next poll handles it again
        for run, served in list(self._runs.served.items()):
            if run not in run_summaries and run not in self._runs.driven:
                await served.catch_up()  # which finds that it has ended
        self._seen = run_summaries
        if asyncio.get_running_loop().time() >= self._heartbeats_due:
            await self._presence.exchange_heartbeats()
            self._heartbeats_due = asyncio.get_running_loop().time() + HEARTBEAT_EXCHANGE_SECONDS

    async def _handled(self, run: str, summary: RunSummary) -> bool:
        """Act on a run's summary; log a failure once and return False, so that it does not delay other runs."""
        try:
            await self._handle(run, summary)
        except (MoonfedError, OSError) as error:
            if self._reported_problems.get(run) != str(error):
                _log.warning("cannot follow run %r; retrying: %s", run, error, extra={"run": run})
            self._reported_problems[run] = str(error)
            return False
        self._reported_problems.pop(run, None)
        return True

    async def run_heartbeats(self) -> None:
        """Send heartbeats; while the database is unavailable, leases expire, and nothing can be committed.

        Raises VersionMismatch once a newer release has contracted the schema.
        """
        while True:
            await _retrying(self.heartbeat(), "this replica cannot publish its heartbeat", VersionMismatch)
            await asyncio.sleep(LEASE_SECONDS / HEARTBEATS)

    async def run_polling(self) -> None:
        """Poll forever."""
        while True:
            await _retrying(self.poll(), "this replica cannot read the state of the others")
            await asyncio.sleep(POLL_SECONDS)

    async def _handle(self, run: str, summary: RunSummary) -> None:
        ours = summary.holder == self._leases.holder
        if not ours and not summary.holder:
            ours = await in_thread(self._leases.acquire, run, LEASE_SECONDS)
        driven = run in self._runs.driven
        if ours and not driven:
            await self._runs.drive(run)
            await self._fulfil(run, summary)
        elif not ours and (driven or run not in self._runs.served):
            await self._runs.follow(run)
        elif summary != self._seen.get(run) and (served := self._runs.served.get(run)):
            await served.catch_up()
            if ours:
                await self._fulfil(run, summary)

    async def _fulfil(self, run: str, summary: RunSummary) -> None:
        """Fulfil an operator's request to another replica."""
        served = self._runs.served.get(run)
        if served and summary.request == "stop":
            await served.stop()
        elif served and summary.request:
            await served.set_paused(paused=summary.request == "pause")


async def _retrying(work: Coroutine[Any, Any, None], problem: str, *final: type[Exception]) -> None:
    try:
        await work
    except final:
        raise
    except Exception as error:
        log_error(_log, f"{problem}; retrying in {RETRY_SECONDS:g} s", error)
        await asyncio.sleep(RETRY_SECONDS)
