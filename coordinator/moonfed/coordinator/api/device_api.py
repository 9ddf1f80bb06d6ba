"""What devices want of the coordinator, over all runs. The Fleet service calls this, and nothing below it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager
from pathlib import Path

from moonfed.assignment import RunEnded
from moonfed.coordinator.devices.liveness import Liveness
from moonfed.coordinator.devices.notifications import ending
from moonfed.coordinator.devices.sessions import DeviceInfo, DeviceSession, Sessions, require_contract
from moonfed.coordinator.records import MAX_REASON, AttemptId, DeviceReport
from moonfed.coordinator.runs.manager import RunManager
from moonfed.coordinator.storage.opening import Storage
from moonfed.coordinator.support.tasks import BackgroundTasks
from moonfed.coordinator.updates.submission import Updates, UpdateSession
from moonfed.coordinator.updates.transfer import Transfers
from moonfed.coordinator.updates.validation import UpdateHeader
from moonfed.errors import InvalidInput, NotFound, WrongState


class DeviceApi:
    """Takes devices in, and what they say and hand in to the runs that it is about. Lives on one event loop."""

    def __init__(
        self,
        storage: Storage,
        runs: RunManager,
        uploads: Transfers,
        attendance: Sessions,
        liveness: Liveness,
        background: BackgroundTasks,
    ) -> None:
        self.blobs, self._registry, self._runs = storage.blobs, storage.store.devices, runs
        self._attendance, self._liveness, self._background = attendance, liveness, background
        self._submissions = Updates(storage, uploads, background)

    @asynccontextmanager
    async def attend(self, introduction: DeviceInfo) -> AsyncIterator[DeviceSession]:
        """A device is here for as long as the context lasts."""
        require_contract(introduction.contract_version, f"device {introduction.device!r}")
        if problem := self._runs.misfit(introduction):
            raise problem
        session = self._attendance.join(introduction)
        self._liveness.sign(introduction.device)
        self._background.spawn(self._noticed(introduction.device, introduction.platform))
        self._background.spawn(self._tell_ended(session))
        try:
            yield session
        finally:
            self._attendance.leave(session)
            self._background.spawn(self._noticed(introduction.device, None))

    async def submit(self, header: UpdateHeader) -> UpdateSession:
        """Starts, or goes on with, handing in an update."""
        return await self._submissions.begin(await self._runs.find(header.id.run, header.id), header)

    async def submit_files(self, header: UpdateHeader, files: Mapping[str, Path]) -> None:
        """Hands in an update whose files, by role, lie on this machine; nothing is sent, the checks are the same.

        Returns when the update is durable and counts; taking the same one again changes nothing. The files stay the
        caller's, who may delete them afterwards. Raises what `submit` and its commit raise.
        """
        await self._submissions.take(await self._runs.find(header.id.run, header.id), header, files)

    def held(self, device: str) -> AbstractContextManager[None]:
        """For as long as the context lasts the device waits for us, which is no silence of its own."""
        return self._liveness.held(device)

    def moved_bytes(self, device: str) -> None:
        """A device has fetched or sent a part of something, which is a sign of progress."""
        self._liveness.sign(device)

    async def report(self, attempt: AttemptId, device: str, fraction: float) -> WrongState | None:
        """Takes notice of progress; the reason if the device may stop."""
        if not 0 <= fraction <= 1:
            raise InvalidInput(f"fraction is {fraction}; it must be from 0 to 1")
        served = await self._runs.find(attempt.run, attempt)
        return served.report(attempt, device, fraction) if served else WrongState(f"run {attempt.run!r} has ended")

    async def decline(self, attempt: AttemptId, device: str, reason: str) -> None:
        """A device will deliver no update for an assignment."""
        served = await self._runs.find(attempt.run, attempt)
        if served is None:
            raise WrongState(f"run {attempt.run!r} has ended")
        report = DeviceReport(id=attempt, device=device, outcome="declined", reason=printable(reason[:MAX_REASON]))
        await self._background.finish(served.decline(report))

    async def _noticed(self, device: str, platform: Mapping[str, str] | None) -> None:
        """Lets every run know whether the device is here now."""
        if self._runs.dismissed:
            return
        try:  # known first, since a round may begin with it: SCAFFOLD counts the devices that there are
            await asyncio.to_thread(self._registry.seen, device, platform)
        finally:
            for served in list(self._runs.served.values()):
                await served.refresh(device)

    async def _tell_ended(self, session: DeviceSession) -> None:
        """Lets a device know which of the runs that it keeps state of are over."""
        for run in session.introduction.runs:
            if ended := await self._ending(run):
                session.tell_ended(ended)

    async def _ending(self, run: str) -> RunEnded | None:
        """None while the run goes on, or is suspended and may go on after a restart."""
        try:
            view = await self._runs.view(run)
            return None if view.record.status == "running" else ending(view)
        except NotFound:  # of a coordinator that was here before; unless one of that name has just started
            return None if run in self._runs.served else RunEnded(run=run)


def printable(text: str) -> str:
    """A device's own words without line breaks and the like, which could forge lines of the log."""
    return "".join(letter if letter.isprintable() else " " for letter in text)
