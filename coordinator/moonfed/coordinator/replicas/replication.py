"""A coordinator on its own or as one of several replicas: chosen once, by its database."""

from __future__ import annotations

import asyncio
from typing import Protocol

from moonfed.coordinator.replicas.monitor import ReplicaMonitor, Runs
from moonfed.coordinator.replicas.presence import Presence
from moonfed.coordinator.storage.store import Store
from moonfed.coordinator.support.tasks import BackgroundTasks


class Replication(Protocol):
    """Decides which of the running runs this coordinator drives."""

    async def start(self) -> None:
        """Start serving the running runs."""

    async def failure(self) -> None:
        """Wait until this coordinator must not go on, then raise the reason."""

    async def stop(self) -> None:
        """Release them, so that other replicas need not wait for the leases to expire."""


class ResumableRuns(Runs, Protocol):
    """Runs that can all be resumed together."""

    async def resume_all(self) -> None:
        """Drive every running run."""


class Standalone:
    """The only coordinator on its database: it drives every run."""

    def __init__(self, runs: ResumableRuns) -> None:
        self._runs = runs

    async def start(self) -> None:
        """Resume all running runs."""
        await self._runs.resume_all()

    async def failure(self) -> None:
        """Wait forever."""
        await asyncio.Event().wait()

    async def stop(self) -> None:
        """Do nothing: no other coordinator can drive the runs."""


class Replicated:
    """One of several coordinators on a shared database: it drives the runs whose leases it holds."""

    def __init__(self, store: Store, runs: Runs, presence: Presence, background: BackgroundTasks) -> None:
        self._store, self._background = store, background
        self._monitor = ReplicaMonitor(store, runs, presence)

    async def start(self) -> None:
        """Register this replica, acquire free runs, and start polling the database."""
        await self._monitor.heartbeat()
        await self._monitor.poll()
        self._heartbeats = self._background.spawn(self._monitor.run_heartbeats())
        self._background.spawn(self._monitor.run_polling())

    async def failure(self) -> None:
        """Wait until a newer release has contracted the schema, then raise VersionMismatch."""
        await self._heartbeats

    async def stop(self) -> None:
        """Release the leases and withdraw this replica's online devices."""
        await asyncio.to_thread(self._store.leases.release)
        await asyncio.to_thread(self._store.online_devices.withdraw)
