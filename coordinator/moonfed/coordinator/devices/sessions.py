"""Sessions of the devices that are online, with the messages that wait for each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from moonfed.blobs.store import BlobRef
from moonfed.coordinator.devices.shared_identities import SharedIdentities
from moonfed.coordinator.records import MAX_FINGERPRINT, MAX_SAMPLES
from moonfed.errors import InvalidInput, MoonfedError, Unavailable, VersionMismatch, WrongState
from moonfed.fleet.assignment import Assignment, AttemptId, EligibilityCheck, RunEnded
from moonfed.fleet.evaluation import EvaluationTask
from moonfed.fleet.target_release import TargetRelease
from moonfed.labels import INFERENCE_ONLY, check_labels
from moonfed.validate import require_whole
from moonfed.version import CONTRACT_VERSION

MAX_WORDS, MAX_WORD = 64, 200  # of a device's description
MAX_RUNS, MAX_RUN = 64, 128  # that a device may name, and characters of each name
Message = Assignment | EligibilityCheck | EvaluationTask | RunEnded | TargetRelease
MessageKey = AttemptId | str | tuple[str, int, int]  # an attempt, a run that ended, or an evaluation


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
    operator_labels: Mapping[str, str] = field(default_factory=dict)  # which override those; from the registry
    encodings: tuple[str, ...] = ()  # of models that it supports, besides float32
    fingerprint: str = ""  # of its data, limits and release; empty: it checks no runs
    release: str = ""  # of moonfed
    instance: str = ""  # of its process, which no other has; empty: an older client
    address: str = ""  # from which it calls, with the port; from the connection

    def __post_init__(self) -> None:
        words = [*self.plan_interfaces, *self.encodings, *self.platform, *self.platform.values()]
        words += [word for word in (self.release, self.instance, self.address) if word]
        if len(words) > MAX_WORDS or any(len(word) > MAX_WORD or not word.isprintable() for word in words):
            raise InvalidInput(
                f"device {self.device!r} sends a description of {len(words)} words; "
                f"it must be at most {MAX_WORDS}, each of up to {MAX_WORD} printable characters",
                field="device",
                value=self.device,
            )
        check_labels(self.labels)
        require_whole("samples", self.samples, 0, MAX_SAMPLES)
        if len(self.fingerprint) > MAX_FINGERPRINT or not self.fingerprint.isprintable():
            raise InvalidInput(
                f"fingerprint must be at most {MAX_FINGERPRINT} printable characters", field="fingerprint"
            )
        if len(self.runs) > MAX_RUNS:
            raise InvalidInput(
                f"runs has {len(self.runs)} names; it must be at most {MAX_RUNS}", field="runs", value=len(self.runs)
            )
        for run in self.runs:
            if not 0 < len(run) <= MAX_RUN or not run.isprintable():
                raise InvalidInput(
                    f"runs names {run[:MAX_RUN]!r}; it must be 1 to {MAX_RUN} printable characters",
                    field="runs",
                    value=run[:MAX_RUN],
                )

    @property
    def inference_only(self) -> bool:
        """True if it has no data, and so never trains."""
        return INFERENCE_ONLY in self.platform

    @property
    def all_labels(self) -> dict[str, str]:
        """Labels of its own, overridden by the operators'."""
        return {**self.labels, **self.operator_labels}


@dataclass(slots=True, eq=False)
class DeviceSession:
    """One device's time online, with the messages that wait for it."""

    info: DeviceInfo
    serial: str = ""  # of the device's certificate, if it has one
    _queue: asyncio.Queue[Message | MoonfedError] = field(default_factory=asyncio.Queue)
    _sent: set[MessageKey] = field(default_factory=set)
    _checks: dict[str, EligibilityCheck] = field(default_factory=dict)  # unanswered, by run
    # The sha256 of the blobs of unanswered evaluations, by `EvaluationTask.key`.
    _evaluated: dict[tuple[str, int, int], frozenset[str]] = field(default_factory=dict)
    _targets: dict[str, TargetRelease] = field(default_factory=dict)  # the latest sent, by release

    @property
    def device(self) -> str:
        """The device's name."""
        return self.info.device

    def assign(self, assignment: Assignment) -> bool:
        """Queue an assignment, once in a session; return False for a repetition."""
        return self._send(assignment.id, assignment)

    def ask(self, check: EligibilityCheck) -> None:
        """Queue a check, unless the device has yet to answer an earlier one of the run."""
        if check.run not in self._checks:
            self._checks[check.run] = check
            self._queue.put_nowait(check)

    def answered(self, run: str) -> None:
        """Note that the device has answered the check of a run."""
        self._checks.pop(run, None)

    def evaluate(self, task: EvaluationTask, plans: Iterable[BlobRef]) -> None:
        """Queue an evaluation, once in a session; until it has answered, the device may fetch the `plans`, too."""
        if task.key not in self._sent:
            refs = (task.manifest, task.signature, task.model, *plans)
            self._evaluated[task.key] = frozenset(ref.sha256 for ref in refs if ref)
            self._send(task.key, task)

    def evaluated(self, key: tuple[str, int, int]) -> None:
        """Note that the device has answered an evaluation, by its task's key, or that this has ended."""
        self._evaluated.pop(key, None)

    def may_fetch(self, sha256: str) -> bool:
        """Return True if a check or an evaluation that the device has yet to answer refers to the blob."""
        refs = (ref for check in list(self._checks.values()) for ref in (check.manifest, check.signature) if ref)
        evaluated = list(self._evaluated.values())
        return any(ref.sha256 == sha256 for ref in refs) or any(sha256 in allowed for allowed in evaluated)

    def set_target(self, target: TargetRelease, *, installed: bool) -> None:
        """Queue a target unless it was sent already.

        One that is `installed` is sent only to supersede another one, which the device may be installing.
        """
        sent = self._targets.get(target.name)
        if sent == target or (installed and (sent is None or _same_version(sent, target))):
            return
        self._targets[target.name] = target
        self._queue.put_nowait(target)

    def notify_ended(self, ended: RunEnded) -> None:
        """Queue the end of a run, once in a session."""
        self._send(ended.run, ended)

    def _send(self, key: MessageKey, message: Assignment | EvaluationTask | RunEnded) -> bool:
        if key in self._sent:
            return False
        self._sent.add(key)
        self._queue.put_nowait(message)
        return True

    def close(self, reason: MoonfedError) -> None:
        """End the session with this error."""
        self._queue.put_nowait(reason)

    async def messages(self) -> AsyncIterator[Message]:
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

    def ask(self, check: EligibilityCheck) -> None:
        """Do nothing: the other replica asks."""

    def evaluate(self, task: EvaluationTask, plans: Iterable[BlobRef]) -> None:
        """Do nothing: the other replica asks."""

    def set_target(self, target: TargetRelease, *, installed: bool) -> None:
        """Do nothing: the other replica sends it."""

    def _send(self, key: MessageKey, message: Assignment | EvaluationTask | RunEnded) -> bool:
        return True  # the other replica knows whether it is a repetition

    def close(self, reason: MoonfedError) -> None:
        """Do nothing: the session belongs to the other replica."""


class Sessions:
    """The sessions by device. A device has one session: a newer one ends the older."""

    def __init__(self) -> None:
        self.identities = SharedIdentities()
        self._local: dict[str, DeviceSession] = {}
        self._remote: dict[str, RemoteSession] = {}
        self._operator_labels: Mapping[str, Mapping[str, str]] = {}
        self._left: set[str] = set()  # devices that announced that they stop, here
        self._left_elsewhere: frozenset[str] = frozenset()

    def open(self, info: DeviceInfo, serial: str = "") -> DeviceSession:
        """Open a session; `serial`: of the device's certificate, if it has one."""
        session = DeviceSession(self._labelled(info), serial)
        if earlier := self._local.get(session.device):
            earlier.close(
                WrongState(
                    f"device {session.device!r} has connected again; this session ends",
                    field="device",
                    value=session.device,
                )
            )
        self._local[session.device] = session
        self._left.discard(session.device)
        self.identities.connected(info.device, info.instance, info.address, serial)
        return session

    def leave(self, device: str) -> None:
        """End the session of a device that stops."""
        self._end(device, f"device {device!r} has left")

    def end_rejected(self, serials: Collection[str]) -> None:
        """End the sessions with these certificates, which their devices cannot resume, as if these had left."""
        for session in [session for session in self._local.values() if session.serial in serials]:
            self._end(session.device, f"the certificate {session.serial} of {session.device!r} is no longer accepted")

    def _end(self, device: str, reason: str) -> None:
        self._left.add(device)
        if session := self._local.pop(device, None):
            session.close(Unavailable(reason))

    def has_left(self, device: str) -> bool:
        """Return True if a device is offline because it announced that it stops."""
        return self.find(device) is None and (device in self._left or device in self._left_elsewhere)

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

    def set_remote(self, sessions: Mapping[str, RemoteSession], left: Collection[str] = ()) -> None:
        """Replace the sessions at other replicas, by device, and the devices that left them."""
        for name, session in sessions.items():
            before, info = self._remote.get(name), session.info
            if before is None or before.info.instance != info.instance:
                self.identities.connected(name, info.instance, info.address)
        self._remote, self._left_elsewhere = dict(sessions), frozenset(left)
        for session in self._remote.values():
            session.info = self._labelled(session.info)

    def set_operator_labels(self, labels: Mapping[str, Mapping[str, str]]) -> list[str]:
        """Replace the labels that operators set, by device; return the online devices whose labels changed."""
        before, self._operator_labels = self._operator_labels, labels
        changed = []
        for session in (*self._remote.values(), *self._local.values()):
            if before.get(session.device, {}) != labels.get(session.device, {}):
                session.info = self._labelled(session.info)
                changed.append(session.device)
        return sorted(set(changed))

    def _labelled(self, info: DeviceInfo) -> DeviceInfo:
        return replace(info, operator_labels=self._operator_labels.get(info.device, {}))

    def close(self, reason: MoonfedError) -> None:
        """End all sessions with this error."""
        for session in self.all():
            session.close(reason)


def _same_version(one: TargetRelease, other: TargetRelease) -> bool:
    return (one.version, one.variant) == (other.version, other.variant)


def require_contract(version: str, who: str) -> None:
    """Raise VersionMismatch unless the caller uses our major version of the contract."""
    if version.partition(".")[0] != CONTRACT_VERSION.partition(".")[0]:
        raise VersionMismatch(
            f"{who} uses contract version {version or 'unknown'}; this coordinator uses {CONTRACT_VERSION}; "
            "upgrade the older of the two"
        )
