"""Which devices are here now: one session for each attending device, with all that it has yet to be told."""

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

MAX_WORDS, MAX_WORD = 64, 200  # that a device may say of itself when it attends
MAX_RUNS, MAX_RUN = 64, 128  # that it may name then, and characters of each


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceInfo:
    """What a device says of itself when it attends."""

    device: str
    contract_version: str
    plan_interfaces: tuple[str, ...]
    platform: Mapping[str, str]
    samples: int = 0  # that it trains on; 0: not known yet
    runs: tuple[str, ...] = ()  # of which it keeps state, and has not heard that they ended
    labels: Mapping[str, str] = field(default_factory=dict)  # that runs pick devices by
    encodings: tuple[str, ...] = ()  # of models, that it knows beside float32

    def __post_init__(self) -> None:
        told = [*self.plan_interfaces, *self.encodings, *self.platform, *self.platform.values()]
        if len(told) > MAX_WORDS or any(len(word) > MAX_WORD or not word.isprintable() for word in told):
            raise InvalidInput(
                f"device {self.device!r} says {len(told)} words of itself; "
                f"it must be at most {MAX_WORDS}, each of up to {MAX_WORD} printable characters"
            )
        check_labels(self.labels)
        require_whole("samples", self.samples, 0, MAX_SAMPLES)
        if len(self.runs) > MAX_RUNS:
            raise InvalidInput(f"runs names {len(self.runs)} runs; it must be at most {MAX_RUNS}")
        for run in self.runs:
            if not 0 < len(run) <= MAX_RUN or not run.isprintable():
                raise InvalidInput(f"runs names {run[:MAX_RUN]!r}; it must be 1 to {MAX_RUN} printable characters")


@dataclass(slots=True, eq=False)
class DeviceSession:
    """One attendance of one device."""

    introduction: DeviceInfo
    _queue: asyncio.Queue[Assignment | RunEnded | MoonfedError] = field(default_factory=asyncio.Queue)
    _told: set[AttemptId | str] = field(default_factory=set)  # attempts assigned, and runs that ended

    @property
    def device(self) -> str:
        """The device's name."""
        return self.introduction.device

    def offer(self, assignment: Assignment) -> None:
        """Queues an assignment, once in a session."""
        self._tell(assignment.id, assignment)

    def tell_ended(self, ended: RunEnded) -> None:
        """Queue the end of a run, once per session."""
        self._tell(ended.run, ended)

    def _tell(self, key: AttemptId | str, reply: Assignment | RunEnded) -> None:
        if key not in self._told:
            self._told.add(key)
            self._queue.put_nowait(reply)

    def close(self, reason: MoonfedError) -> None:
        """Ends the attendance."""
        self._queue.put_nowait(reason)

    async def replies(self) -> AsyncIterator[Assignment | RunEnded]:
        """All that the device is told; raises the reason when the session is closed."""
        while True:
            item = await self._queue.get()
            if isinstance(item, MoonfedError):
                raise item
            yield item

    async def assignments(self) -> AsyncIterator[Assignment]:
        """Only what the device is to do, for one that keeps nothing of a run beyond its end."""
        async for reply in self.replies():
            if isinstance(reply, Assignment):
                yield reply


class RemoteSession(DeviceSession):
    """An attendance at another replica, which tells the device what there is to tell."""

    def _tell(self, key: AttemptId | str, reply: Assignment | RunEnded) -> None:
        pass

    def close(self, reason: MoonfedError) -> None:
        """Nothing: it is not ours."""


class Sessions:
    """The sessions by device. A device attends once: the newer session ends the older."""

    def __init__(self) -> None:
        self._sessions: dict[str, DeviceSession] = {}
        self._distant: dict[str, RemoteSession] = {}

    def join(self, introduction: DeviceInfo) -> DeviceSession:
        """A new session."""
        session = DeviceSession(introduction)
        earlier = self._sessions.get(session.device)
        if earlier:
            earlier.close(WrongState(f"device {session.device!r} attends from another place; this attendance ends"))
        self._sessions[session.device] = session
        return session

    def leave(self, session: DeviceSession) -> None:
        """The session is over, unless a newer one has replaced it."""
        if self._sessions.get(session.device) is session:
            del self._sessions[session.device]

    def find(self, device: str) -> DeviceSession | None:
        """The device's present session."""
        return self._sessions.get(device) or self._distant.get(device)

    def sessions(self) -> list[DeviceSession]:
        """All present sessions, those at other replicas among them."""
        return list({**self._distant, **self._sessions}.values())

    def here(self) -> dict[str, DeviceSession]:
        """The sessions at this replica, by device."""
        return dict(self._sessions)

    def note_distant(self, sessions: Mapping[str, RemoteSession]) -> None:
        """Who attends at other replicas now, by device."""
        self._distant = dict(sessions)

    def close(self, reason: MoonfedError) -> None:
        """Ends all sessions."""
        for session in self.sessions():
            session.close(reason)


def require_contract(version: str, who: str) -> None:
    """Raises VersionMismatch unless the caller speaks our major version of the contract."""
    if version.partition(".")[0] != CONTRACT_VERSION.partition(".")[0]:
        raise VersionMismatch(
            f"{who} speaks contract version {version or 'unknown'}; this coordinator speaks {CONTRACT_VERSION}"
        )
