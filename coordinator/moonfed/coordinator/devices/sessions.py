"""Sessions of the devices that are online, with the messages that wait for each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field

from moonfed.assignment import Assignment, AttemptId, RunEnded
from moonfed.coordinator.records import MAX_SAMPLES
from moonfed.errors import InvalidInput, MoonfedError, VersionMismatch, WrongState
from moonfed.labels import check_labels
from moonfed.validate import require_whole
from moonfed.version import CONTRACT_VERSION

MAX_WORDS, MAX_WORD = 64, 200  # of a device's description
MAX_RUNS, MAX_RUN = 64, 128  # that a device may name, and characters of each name


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceInfo:
    """A device's description of itself."""

    device: str
    contract_version: str
    plan_interfaces: tuple[str, ...]
    platform: Mapping[str, str]
    samples: int = 0  # training samples; 0: unknown
    runs: tuple[str, ...] = ()  # runs whose state it keeps, because it has not learnt of their end
    labels: Mapping[str, str] = field(default_factory=dict)  # by which runs select devices
    encodings: tuple[str, ...] = ()  # of models that it supports, besides float32

    def __post_init__(self) -> None:
        words = [*self.plan_interfaces, *self.encodings, *self.platform, *self.platform.values()]
        if len(words) > MAX_WORDS or any(len(word) > MAX_WORD or not word.isprintable() for word in words):
            raise InvalidInput(
                f"device {self.device!r} sends a description of {len(words)} words; "
                f"it must be at most {MAX_WORDS}, each of up to {MAX_WORD} printable characters"
            )
        check_labels(self.labels)
        require_whole("samples", self.samples, 0, MAX_SAMPLES)
        if len(self.runs) > MAX_RUNS:
            raise InvalidInput(f"runs has {len(self.runs)} names; it must be at most {MAX_RUNS}")
        for run in self.runs:
            if not 0 < len(run) <= MAX_RUN or not run.isprintable():
                raise InvalidInput(f"runs names {run[:MAX_RUN]!r}; it must be 1 to {MAX_RUN} printable characters")


@dataclass(slots=True, eq=False)
class DeviceSession:
    """One device's time online, with the messages that wait for it."""

    info: DeviceInfo
    _queue: asyncio.Queue[Assignment | RunEnded | MoonfedError] = field(default_factory=asyncio.Queue)
    _sent: set[AttemptId | str] = field(default_factory=set)  # attempts assigned, and runs that ended

    @property
    def device(self) -> str:
        """The device's name."""
        return self.info.device

    def assign(self, assignment: Assignment) -> None:
        """Queue an assignment, once in a session."""
        self._send(assignment.id, assignment)

    def notify_ended(self, ended: RunEnded) -> None:
        """Queue the end of a run, once in a session."""
        self._send(ended.run, ended)

    def _send(self, key: AttemptId | str, message: Assignment | RunEnded) -> None:
        if key not in self._sent:
            self._sent.add(key)
            self._queue.put_nowait(message)

    def close(self, reason: MoonfedError) -> None:
        """End the session with this error."""
        self._queue.put_nowait(reason)

    async def messages(self) -> AsyncIterator[Assignment | RunEnded]:
        """Yield the device's messages; raises the reason when the session is closed."""
        while True:
            item = await self._queue.get()
            if isinstance(item, MoonfedError):
                raise item
            yield item

    async def assignments(self) -> AsyncIterator[Assignment]:
        """Yield assignments only, for a device that keeps nothing of a run beyond its end."""
        async for message in self.messages():
            if isinstance(message, Assignment):
                yield message


class RemoteSession(DeviceSession):
    """A session at another replica, which sends the device its messages."""

    def _send(self, key: AttemptId | str, message: Assignment | RunEnded) -> None:
        pass

    def close(self, reason: MoonfedError) -> None:
        """Do nothing: the session belongs to the other replica."""


class Sessions:
    """The sessions by device. A device has one session: a newer one ends the older."""

    def __init__(self) -> None:
        self._local: dict[str, DeviceSession] = {}
        self._remote: dict[str, RemoteSession] = {}

    def open(self, info: DeviceInfo) -> DeviceSession:
        """Open a session."""
        session = DeviceSession(info)
        if earlier := self._local.get(session.device):
            earlier.close(WrongState(f"device {session.device!r} has connected again; this session ends"))
        self._local[session.device] = session
        return session

    def discard(self, session: DeviceSession) -> None:
        """Remove a session that is over, unless a newer one has replaced it."""
        if self._local.get(session.device) is session:
            del self._local[session.device]

    def find(self, device: str) -> DeviceSession | None:
        """Return the device's session, if it is online."""
        return self._local.get(device) or self._remote.get(device)

    def all(self) -> list[DeviceSession]:
        """Return all sessions, at other replicas too."""
        return list({**self._remote, **self._local}.values())

    def local(self) -> dict[str, DeviceSession]:
        """Return the sessions at this replica, by device."""
        return dict(self._local)

    def set_remote(self, sessions: Mapping[str, RemoteSession]) -> None:
        """Replace the sessions at other replicas, by device."""
        self._remote = dict(sessions)

    def close(self, reason: MoonfedError) -> None:
        """End all sessions with this error."""
        for session in self.all():
            session.close(reason)


def require_contract(version: str, who: str) -> None:
    """Raise VersionMismatch unless the caller uses our major version of the contract."""
    if version.partition(".")[0] != CONTRACT_VERSION.partition(".")[0]:
        raise VersionMismatch(
            f"{who} uses contract version {version or 'unknown'}; this coordinator uses {CONTRACT_VERSION}"
        )
