"""The calls of devices, over all runs and independent of the transport. The Fleet service calls this."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager

from moonfed.assignment import RunEnded
from moonfed.coordinator.devices.blob_access import BlobAccess
from moonfed.coordinator.devices.liveness import Liveness
from moonfed.coordinator.devices.notifications import run_ended
from moonfed.coordinator.devices.sessions import DeviceInfo, DeviceSession, Sessions, require_contract
from moonfed.coordinator.records import MAX_REASON, AttemptId, DeviceReport
from moonfed.coordinator.runs.manager import RunManager
from moonfed.coordinator.storage.blobs.blob_store import BlobStore
from moonfed.coordinator.storage.device_registry import DeviceRegistry
from moonfed.coordinator.support.tasks import BackgroundTasks
from moonfed.errors import InvalidInput, NotFound, WrongState
from moonfed.printable import printable


class DeviceApi:
    """Sessions of devices, and what they report. Lives on one event loop."""

    def __init__(
        self,
        *,
        blobs: BlobStore,
        access: BlobAccess,
        registry: DeviceRegistry,
        runs: RunManager,
        sessions: Sessions,
        liveness: Liveness,
        background: BackgroundTasks,
    ) -> None:
        self.blobs, self.access = blobs, access
        self._registry, self._runs = registry, runs
        self._sessions, self._liveness, self._background = sessions, liveness, background

    @asynccontextmanager
    async def connect(self, info: DeviceInfo) -> AsyncIterator[DeviceSession]:
        """Keep a device online for as long as the context lasts."""
        require_contract(info.contract_version, f"device {info.device!r}")
        if problem := self._runs.incompatibility(info):
            raise problem
        session = self._sessions.open(info)
        self._liveness.heartbeat(info.device)
        self._background.spawn(self._refresh(info.device, info.platform))
        self._background.spawn(self._notify_ended(session))
        try:
            yield session
        finally:
            self._sessions.discard(session)
            self._background.spawn(self._refresh(info.device, None))

    def suspended(self, device: str) -> AbstractContextManager[None]:
        """Exempt a device from stall detection while it waits for the coordinator."""
        return self._liveness.suspended(device)

    def heartbeat(self, device: str) -> None:
        """Note that a device has fetched or sent a part, which is progress."""
        self._liveness.heartbeat(device)

    async def report(self, attempt: AttemptId, device: str, fraction: float) -> WrongState | None:
        """Publish a device's progress; returns why its update is no longer needed, if so."""
        if not 0 <= fraction <= 1:
            raise InvalidInput(f"fraction is {fraction}; it must be from 0 to 1")
        run = await self._runs.find(attempt.run, attempt)
        return run.report(attempt, device, fraction) if run else WrongState(f"run {attempt.run!r} has ended")

    async def decline(self, attempt: AttemptId, device: str, reason: str, *, permanent: bool = False) -> None:
        """Record that a device declines an assignment; if `permanent`, also all others of the assignment's run."""
        run = await self._runs.find(attempt.run, attempt)
        if run is None:
            raise WrongState(f"run {attempt.run!r} has ended")
        report = DeviceReport(id=attempt, device=device, outcome="declined", reason=printable(reason[:MAX_REASON]))
        await self._background.finish(run.decline(report, permanent=permanent))

    async def _refresh(self, device: str, platform: Mapping[str, str] | None) -> None:
        """Tell every run whether a device is online now."""
        if self._runs.dismissed:
            return
        try:  # registered first: connecting may open a round, and SCAFFOLD counts the known devices
            await asyncio.to_thread(self._registry.seen, device, platform)
        finally:
            for run in list(self._runs.served.values()):
                await run.refresh(device)

    async def _notify_ended(self, session: DeviceSession) -> None:
        """Notify a device of the end of runs whose state it keeps."""
        for run in session.info.runs:
            if self._sessions.find(session.device) is not session:  # a device that reconnects would pile these up
                return
            if ended := await self._find_ended(run, session.device):
                session.notify_ended(ended)

    async def _find_ended(self, run: str, device: str) -> RunEnded | None:
        """Return a run's end; None while it is running, or suspended and may resume after a restart."""
        try:
            view = await self._runs.view(run)
            if view.record.status == "running":
                return None
            return run_ended(view, await asyncio.to_thread(self.access.participates, device, run))
        except NotFound:  # a run of an earlier coordinator, unless one of that name has just started
            return None if run in self._runs.served else RunEnded(run=run)
