"""Target releases of the devices that are online here: sent when a device connects or reports, or when they change."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable

from moonfed.coordinator.devices.sessions import DeviceSession, Sessions
from moonfed.coordinator.storage.deployments import Arrival, Deployments, DeviceTarget
from moonfed.coordinator.support.polling import poll
from moonfed.coordinator.support.tasks import in_thread
from moonfed.fleet.target_release import InstalledRelease, ReleaseReport

POLL_SECONDS = 0.4
_log = logging.getLogger(__name__)


class ReleaseTargets:
    """Keeps the targets of local devices up to date, whichever replica changes them. Lives on one event loop."""

    def __init__(self, store: Deployments, sessions: Sessions) -> None:
        self._store, self._sessions = store, sessions
        self._arrivals: dict[DeviceSession, Collection[InstalledRelease]] = {}  # to be recorded
        self._recorded: set[DeviceSession] = set()  # what the others have installed is not known yet
        self._version = -1
        self._refreshing = asyncio.Lock()
        self._choosing = True  # a device may have become known or have other labels: a deployment may choose it

    def connect(self, session: DeviceSession, installed: Collection[InstalledRelease]) -> None:
        """Note what a device has installed; it is soon sent its targets. Its own labels are recorded already."""
        self._arrivals[session] = installed
        self._choosing = True

    async def report(self, report: ReleaseReport) -> None:
        """Record a device's report, and send its next target; raises NotFound if no deployment has chosen it."""
        async with self._refreshing:
            await self._record_arrivals()  # which are older
            targets = await in_thread(self._store.report, report)
        if session := self._sessions.local().get(report.device):
            _send(session, targets)
        elif any(not one.installed for one in targets):
            await in_thread(self._store.count_change)  # so that the replica at which the device is online sends it

    def choose_again(self) -> None:
        """Let deployments choose devices soon, because devices or their labels have changed."""
        self._choosing = True

    async def refresh(self) -> None:
        """Record arrivals, let deployments choose devices, and send all local devices the targets that have changed."""
        async with self._refreshing:
            await self._record_arrivals()
            if self._choosing:
                await in_thread(self._store.choose)
                self._choosing = bool(self._arrivals)
            version = await in_thread(self._store.version)
            if version != self._version:
                sessions = {device: each for device, each in self._sessions.local().items() if each in self._recorded}
                self._send_all(sessions, await in_thread(self._store.targets, sorted(sessions)))
                self._version = version

    async def _record_arrivals(self) -> None:
        arrived = {session: installed for session, installed in self._arrivals.items() if self._is_online(session)}
        if arrived:
            found = [
                Arrival(device=session.device, installed=tuple(installed), fingerprint=session.info.fingerprint)
                for session, installed in arrived.items()
            ]
            targets = await in_thread(self._store.connected, found)
            self._send_all({session.device: session for session in arrived}, targets)
        self._recorded = {session for session in (*self._recorded, *arrived) if self._is_online(session)}
        self._arrivals = {
            session: installed
            for session, installed in self._arrivals.items()
            if session not in arrived and self._is_online(session)
        }

    def _is_online(self, session: DeviceSession) -> bool:
        return self._sessions.find(session.device) is session

    @staticmethod
    def _send_all(sessions: dict[str, DeviceSession], targets: dict[str, list[DeviceTarget]]) -> None:
        for device, of_device in targets.items():
            _send(sessions[device], of_device)

    async def run(self) -> None:
        """Refresh forever; while the database is unavailable, devices keep their targets."""
        problem = "cannot read the deployments of releases; devices keep their targets"
        await poll(self.refresh, POLL_SECONDS, _log, problem)


def _send(session: DeviceSession, targets: Iterable[DeviceTarget]) -> None:
    for one in targets:
        session.set_target(one.target, installed=one.installed)
