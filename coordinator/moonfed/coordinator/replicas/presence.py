"""Presence: exchange of online devices and their heartbeats between replicas.

Signs of progress travel the same way, since a run's holder counts the patience with all of its devices.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from moonfed.coordinator.devices.liveness import Liveness
from moonfed.coordinator.devices.sessions import DeviceInfo, DeviceSession, RemoteSession, Sessions
from moonfed.coordinator.storage.online_devices import OnlineDevices, Place, Places
from moonfed.coordinator.support.tasks import in_thread
from moonfed.errors import WrongState


class Presence:
    """The online devices of one replica and of the others. Lives on one event loop."""

    def __init__(self, store: OnlineDevices, replica: str, sessions: Sessions, liveness: Liveness) -> None:
        self._store, self._replica = store, replica
        self._sessions, self._liveness = sessions, liveness
        self._told: dict[str, tuple[DeviceSession, int]] = {}  # what the others know of us, by device, and since when
        self._stamp: tuple[int, int] | None = None  # of what we know of them
        self._places: Places = {}
        self._signed_until, self._heard_until = -float("inf"), 0.0  # by the loop's clock; by the database's

    def forget_told(self) -> None:
        """Publish our sessions again: they expired in the database."""
        self._told.clear()

    async def exchange(self) -> set[str]:
        """Publish our sessions and read the others'; return the devices that changed at other replicas."""
        await self._tell()
        stamp = await in_thread(self._store.stamp)
        if stamp == self._stamp:
            return set()
        places = await in_thread(self._store.places)
        self._stamp = stamp
        return self._hear(places)

    async def exchange_signs(self) -> None:
        """Publish heartbeats received here, and apply those received elsewhere."""
        now = asyncio.get_running_loop().time()
        signed = {name for name in self._told if self._liveness.last_heartbeat(name) > self._signed_until}
        if signed:
            await in_thread(self._store.sign, signed)
        self._signed_until = now
        devices, self._heard_until = await in_thread(self._store.signed_after, self._heard_until)
        for device in devices:
            self._liveness.heartbeat(device)

    async def _tell(self) -> None:
        here = self._sessions.local()
        arrived = {name: session for name, session in here.items() if self._told_of(name) is not session}
        left = {name: since for name, (_, since) in self._told.items() if name not in here}
        if arrived or left:
            documents = {name: to_document(session.info) for name, session in arrived.items()}
            since = await in_thread(self._store.tell, documents, left)
            for name in left:
                self._told.pop(name, None)
            self._told |= {name: (session, since[name]) for name, session in arrived.items()}

    def _told_of(self, device: str) -> DeviceSession | None:
        told = self._told.get(device)
        return told[0] if told else None

    def _hear(self, places: Places) -> set[str]:
        elsewhere = {name: place for name, place in places.items() if place.replica != self._replica}
        for name, place in elsewhere.items():
            self._give_up(name, place)
        for name in self._told.keys() - places.keys():  # somebody took us for dead
            del self._told[name]
        changed = {name for name in {*elsewhere, *self._places} if elsewhere.get(name) != self._places.get(name)}
        self._places = elsewhere
        self._sessions.set_remote({name: _session(name, place) for name, place in elsewhere.items()})
        return changed

    def _give_up(self, device: str, place: Place) -> None:
        """Close a session here that a newer one at another replica has replaced."""
        told = self._told.get(device)
        if told and told[1] < place.since:
            told[0].close(WrongState(f"device {device!r} has connected again; this session ends"))
            self._sessions.discard(told[0])
            del self._told[device]


def to_document(introduction: DeviceInfo) -> dict[str, Any]:
    """Return what other replicas need to know of a device as JSON values; the registry has the platform."""
    document = asdict(introduction)
    del document["device"], document["platform"]
    return document


def from_document(device: str, document: Mapping[str, Any]) -> DeviceInfo:
    """Read what `to_document` wrote."""
    lists = {name: tuple(document[name]) for name in ("plan_interfaces", "runs", "encodings")}
    return DeviceInfo(device=device, platform={}, **{**document, **lists})


def _session(device: str, place: Place) -> RemoteSession:
    return RemoteSession(from_document(device, place.introduction))
