"""Presence: exchange of online devices and their heartbeats between replicas.

Heartbeats travel the same way, since a run's lease holder applies its timeout to all devices.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from moonfed.coordinator.devices.liveness import Liveness
from moonfed.coordinator.devices.sessions import DeviceInfo, DeviceSession, RemoteSession, Sessions
from moonfed.coordinator.storage.online_devices import OnlineByDevice, OnlineDevice, OnlineDevices
from moonfed.coordinator.support.tasks import in_thread
from moonfed.errors import WrongState
from moonfed.labels import INFERENCE_ONLY


class Presence:
    """The online devices of one replica and of the others. Lives on one event loop."""

    def __init__(self, store: OnlineDevices, replica: str, sessions: Sessions, liveness: Liveness) -> None:
        self._store, self._replica = store, replica
        self._sessions, self._liveness = sessions, liveness
        self._published: dict[str, tuple[DeviceSession, int]] = {}  # our sessions in the database, and their `since`
        self._version: tuple[int, int] | None = None  # of the other replicas' sessions
        self._known: OnlineByDevice = {}
        self._sent_until, self._received_until = -float("inf"), 0.0  # by the loop's clock; by the database's

    def republish(self) -> None:
        """Publish our sessions again: they expired in the database."""
        self._published.clear()

    async def exchange(self) -> set[str]:
        """Publish our sessions and read the others'; return the devices that changed at other replicas."""
        await self._publish()
        stamp = await in_thread(self._store.version)
        if stamp == self._version:
            return set()
        online = await in_thread(self._store.all)
        self._version = stamp
        return self._apply(online)

    async def exchange_heartbeats(self) -> None:
        """Publish heartbeats received here, and apply those received elsewhere."""
        now = asyncio.get_running_loop().time()
        active = {name for name in self._published if self._liveness.last_heartbeat(name) > self._sent_until}
        if active:
            await in_thread(self._store.record_heartbeats, active)
        self._sent_until = now
        devices, self._received_until = await in_thread(self._store.heartbeats_after, self._received_until)
        for device in devices:
            self._liveness.heartbeat(device)

    async def _publish(self) -> None:
        local = self._sessions.local()
        arrived = {name: session for name, session in local.items() if self._published_session(name) is not session}
        gone = {name: since for name, (_, since) in self._published.items() if name not in local}
        if arrived or gone:
            documents = {name: to_document(session.info) for name, session in arrived.items()}
            left = [name for name in gone if self._sessions.has_left(name)]
            since = await in_thread(self._store.publish, documents, gone, left)
            for name in gone:
                self._published.pop(name, None)
            self._published |= {name: (session, since[name]) for name, session in arrived.items()}

    def _published_session(self, device: str) -> DeviceSession | None:
        published = self._published.get(device)
        return published[0] if published else None

    def _apply(self, online: OnlineByDevice) -> set[str]:
        remote = {name: device for name, device in online.items() if device.replica != self._replica}
        left = {name for name, device in remote.items() if device.left}
        for name in remote.keys() - left:
            self._close_superseded(name, remote[name])
        for name in self._published.keys() - online.keys():  # our sessions expired
            del self._published[name]
        changed = {name for name in {*remote, *self._known} if remote.get(name) != self._known.get(name)}
        self._known = remote
        sessions = {name: _session(name, device) for name, device in remote.items() if not device.left}
        self._sessions.set_remote(sessions, left)
        return changed

    def _close_superseded(self, device: str, newer: OnlineDevice) -> None:
        """Close a local session that a newer one at another replica has replaced."""
        session, since = self._published.get(device, (None, 0))
        if session and since < newer.since:
            session.close(
                WrongState(f"device {device!r} has connected again; this session ends", field="device", value=device)
            )
            self._sessions.discard(session)
            del self._published[device]


def to_document(info: DeviceInfo) -> dict[str, Any]:
    """Return what other replicas need to know of a device as JSON values; the registry has the rest."""
    document = asdict(info)
    del document["device"], document["operator_labels"]
    needed = {name: value for name, value in info.platform.items() if name == INFERENCE_ONLY}
    return {**document, "platform": needed}


def from_document(device: str, document: Mapping[str, Any]) -> DeviceInfo:
    """Read what `to_document` wrote."""
    lists = {name: tuple(document[name]) for name in ("plan_interfaces", "runs", "encodings")}
    return DeviceInfo(device=device, **{**document, **lists})


def _session(name: str, device: OnlineDevice) -> RemoteSession:
    return RemoteSession(from_document(name, device.info))
