"""A follower of a run that another replica drives: it offers work to local devices and records their reports.

It reads the run's state from the database, slightly late, and records reports in transactions that see the round open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Set
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from moonfed.blobs.store import BlobRef
from moonfed.bundle.manifest import MODEL, Manifest
from moonfed.control import events
from moonfed.control.runs import Run
from moonfed.coordinator.devices.eligibility import EligibleDevices
from moonfed.coordinator.devices.liveness import Liveness
from moonfed.coordinator.devices.notifications import notify_participants
from moonfed.coordinator.devices.sessions import Sessions
from moonfed.coordinator.records import (
    AttemptId,
    DeviceReport,
    EligibilityReport,
    RunRecord,
    attempt_id,
)
from moonfed.coordinator.rounds.protocol import round_protocol
from moonfed.coordinator.rounds.state import OpenRound, State, Status
from moonfed.coordinator.runs.acceptance import needed_attempts, rejection_reason
from moonfed.coordinator.runs.assignments import GlobalState, build_assignment, load_global_state
from moonfed.coordinator.runs.round_eta import RoundEta
from moonfed.coordinator.runs.snapshot import RunSnapshot, events_between, read_snapshot
from moonfed.coordinator.runs.subscribers import Subscriber, Subscribers
from moonfed.coordinator.runs.view import run_view
from moonfed.coordinator.storage.blobs.blob_store import BlobStore
from moonfed.coordinator.storage.opening import Storage
from moonfed.coordinator.storage.run_summaries import Request
from moonfed.coordinator.storage.store import Store
from moonfed.coordinator.support.tasks import BackgroundTasks, in_thread
from moonfed.coordinator.updates.admission import Admission, Admissions
from moonfed.coordinator.updates.quota import ByteQuota
from moonfed.coordinator.updates.validation import largest_files
from moonfed.errors import MoonfedError, NotFound, Unavailable, WrongState

REQUEST_SECONDS = 10.0  # that an operator's request waits for the run's holder


class RunFollower:
    """One followed run."""

    def __init__(
        self,
        *,
        record: RunRecord,
        manifest: Manifest,
        storage: Storage,
        sessions: Sessions,
        liveness: Liveness,
        background: BackgroundTasks,
    ) -> None:
        self.record = record
        self.manifest = manifest
        self.state = round_protocol(record.settings).first
        self._store = storage.store
        self._blobs = storage.blobs
        self._spool = storage.spool
        self._sessions, self._background = sessions, background
        self._devices = EligibleDevices(sessions, record, manifest, storage.store.eligibility, driven=False)
        self._liveness, self._protocol = liveness, round_protocol(record.settings)
        self._lock = asyncio.Lock()
        self._seen: RunSnapshot | None = None
        self._global_state: GlobalState | None = None
        self._global_state_round = -1  # the committed round that it belongs to
        self._global_state_attempt = 0  # for which it was loaded; the previous attempt may have found it damaged
        self._subscribers, self._eta = Subscribers(), RoundEta()
        self.largest_files = largest_files(manifest, record.settings.encodings.up)
        self._admissions = Admissions(self._local_rejection, ByteQuota(sum(self.largest_files.values())))
        self._fractions: dict[str, float] = {}  # each device's largest reported progress in the open round
        self._ended, self._changed = asyncio.Event(), asyncio.Event()

    async def start(self) -> None:
        """Start following, and ask the devices that have yet to answer whether they are eligible."""
        await self.catch_up()
        self._devices.sessions()

    async def refresh(self, device: str) -> None:
        """Offer work to a device whose connection changed; the run's holder learns of it from the database."""
        async with self._lock:
            self._devices.find(device)
            self._offer([device])

    async def catch_up(self) -> None:
        """Read the run's state, publish what changed, and offer the open round's work."""
        async with self._lock:
            if self.state.status != "running":
                return
            try:
                seen = await in_thread(read_snapshot, self._store, self.record.run, self._seen)
            except NotFound:  # stopped and deleted since the last snapshot
                await self._end(replace(self.record, status="stopped"))
                return
            await self._load_global_state(seen.state)
            for device in await self._devices.catch_up():
                self._devices.find(device)
            await self._apply(seen)

    async def _load_global_state(self, state: State) -> None:
        """Load the global state that the open round's devices start from."""
        if state.open is None or self._protocol.leaseholder_only:
            return
        if (self._global_state_round, self._global_state_attempt) != (state.committed, state.open.attempt):
            self._global_state = await in_thread(
                _load_committed, self._store, self._blobs, self.record, self.manifest, state.committed
            )
            self._global_state_round = state.committed if self._global_state else -1
            self._global_state_attempt = state.open.attempt

    async def _apply(self, seen: RunSnapshot) -> None:
        before, self._seen = self._seen, seen
        if not seen.record.active:
            await self._end(seen.record, before)
            return
        self.record = seen.record
        if self._opens(seen.state.open):
            self._fractions.clear()
        self.state = seen.state
        self._eta.observe(self.state.open)
        self._changed.set()
        self._admissions.review()
        self._publish(before, seen)
        self._offer(self.state.open.outstanding if self.state.open else ())

    def _publish(self, before: RunSnapshot | None, seen: RunSnapshot) -> None:
        for event in events_between(before, seen) if before else ():
            self._subscribers.publish(event)

    async def _end(self, record: RunRecord, before: RunSnapshot | None = None) -> None:
        if before and self._seen:
            self._publish(before, self._seen)
        self.record, self.state = record, replace(self.state, open=None, status=_ended(record))
        self._admissions.review()
        self._ended.set()
        self._changed.set()
        with suppress(NotFound):
            view = await self.view()
            self._subscribers.publish(events.Ended(run=view))
            await notify_participants(view, self._store, self._sessions)
        self._subscribers.close()

    def _opens(self, current: OpenRound | None) -> bool:
        past = self.state.open
        return current is not None and (past is None or (past.round, past.attempt) != (current.round, current.attempt))

    def _offer(self, devices: tuple[str, ...] | list[str]) -> None:
        current, local = self.state.open, self._sessions.local()
        if (
            current is None
            or current.overdue
            or self._protocol.leaseholder_only
            or self._global_state is None
            or self._global_state_round != current.round - 1
        ):
            return
        id_ = attempt_id(self.record.run, current)
        for device in devices:
            session = local.get(device)
            if session and device in current.outstanding and self._devices.find(device):
                session.assign(build_assignment(id_, device, self.record, self.manifest, self._global_state))

    def admit(self, attempt: AttemptId, device: str) -> Admission:
        """Admit a device's update; other coordinators may have recorded its receipt."""
        return self._admissions.admit(attempt, device, may_have_receipt=True)

    async def count(self, admission: Admission, receipt: DeviceReport, files: Mapping[str, Path]) -> None:
        """Count a checked update, whose files, by role, are durable; counting it again changes nothing.

        Raises AlreadyExists if another update of the device counts, or the admission's rejection.
        """
        if not await asyncio.to_thread(self._store.reports.has_receipt, receipt.id, receipt.device, receipt.blobs):
            admission.require()
            await asyncio.to_thread(self._put_update, receipt, files)
            await self._record(receipt)

    def _put_update(self, receipt: DeviceReport, files: Mapping[str, Path]) -> None:
        self._spool.put(receipt.id, receipt.device, files)
        self._spool.sync([receipt.id])

    async def reject(self, report: DeviceReport) -> None:
        """Record that a device's update failed its checks."""
        self._require_admissible(report)
        with suppress(WrongState):  # an earlier update of this device counts
            await self._record(report)

    async def report_eligibility(self, report: EligibilityReport) -> bool:
        """Record whether a device is eligible for the run; the holder learns of it from the database."""
        is_news = await self._devices.record(report)
        await self.refresh(report.device)
        return is_news

    async def forget_removed(self, known: Collection[str]) -> None:
        """Forget the answers of devices that operators removed, renamed or revoked; `known`: the others."""
        await self._devices.forget_removed(known)

    async def decline(self, report: DeviceReport) -> None:
        """Record that a device will deliver no update. Idempotent."""
        current = self.state.open
        if current and self.needs(report.id) and report.device in current.declined:
            return
        self._require_admissible(report)
        await self._record(report)

    async def _record(self, report: DeviceReport) -> None:
        """Record a report in a transaction that sees the round open, and read the result at once."""
        try:
            await asyncio.to_thread(self._store.reports.record, report)
        finally:
            await self.catch_up()

    def report(self, attempt: AttemptId, device: str, fraction: float) -> WrongState | None:
        """Publish a device's progress; return the reason if its update is no longer accepted."""
        problem = self._rejection_reason(attempt, device)
        if problem is None:
            if fraction > self._fractions.get(device, -1.0):
                self._fractions[device] = fraction
                self._liveness.heartbeat(device)
            self._subscribers.publish(
                events.Progress(round=attempt.round, attempt=attempt.attempt, device=device, fraction=fraction)
            )
        return problem

    async def stop(self) -> None:
        """Ask the run's holder to stop it, and wait up to REQUEST_SECONDS."""
        await self._request("stop", lambda: False)

    async def set_paused(self, *, paused: bool) -> None:
        """Ask the run's holder to pause or resume it, and wait up to REQUEST_SECONDS."""
        await self._request("pause" if paused else "resume", lambda: self.state.paused == paused)

    async def _request(self, action: Request, done: Callable[[], bool]) -> None:
        await asyncio.to_thread(self._store.run_summaries.request, self.record.run, action)
        with suppress(asyncio.TimeoutError):  # the holder will fulfil it, or its successor will
            await asyncio.wait_for(self._until(done), REQUEST_SECONDS)

    async def _until(self, done: Callable[[], bool]) -> None:
        while not (self._ended.is_set() or done()):
            self._changed.clear()
            await self._changed.wait()

    def publish_metrics(self, round_: int, metrics: Mapping[str, float]) -> None:
        """Publish new metrics to subscribers."""
        self._subscribers.publish(events.MetricsRecorded(round=round_, metrics=metrics))

    def base_model(self, attempt: AttemptId) -> BlobRef:
        """Return the global model that the open attempt's devices were given."""
        if self._global_state is None or self._global_state_round != attempt.round - 1:
            raise WrongState(f"{attempt} is no longer open")
        return self._global_state.blobs[MODEL]

    def _rejection_reason(self, attempt: AttemptId, device: str) -> WrongState | None:
        return rejection_reason(self.record, self.state, self._eta, attempt, device)

    def _local_rejection(self, attempt: AttemptId, device: str) -> MoonfedError | None:
        """Return why this coordinator does not count a device's update now, or None."""
        if self._protocol.leaseholder_only:
            return Unavailable(
                f"run {self.record.run!r} is asynchronous: only the coordinator that drives it accepts updates",
                field="run",
                value=self.record.run,
            )
        return self._rejection_reason(attempt, device)

    def _require_admissible(self, report: DeviceReport) -> None:
        if problem := self._local_rejection(report.id, report.device):
            raise problem

    def eligible(self) -> Set[str]:
        """Return the online devices that may train the run."""
        return self._devices.names()

    def progress(self) -> dict[str, float]:
        """Return the progress reported here of each device that the open round waits for; a fraction, 0 if none yet."""
        outstanding = self.state.open.outstanding if self.state.open and not self.state.open.reducing else ()
        return {device: self._fractions.get(device, 0.0) for device in outstanding}

    def needs(self, attempt: AttemptId) -> bool:
        """Return True if updates of that attempt may still arrive, or wait to be reduced."""
        return attempt in needed_attempts(self.record, self.state)

    async def view(self) -> Run:
        """Return the operator's view of the run."""
        state = replace(self.state, online=frozenset(session.device for session in self._devices.sessions()))
        problems, progress = self._devices.problems(), self.progress()
        view = await asyncio.to_thread(run_view, self._store, self.record, state, problems, progress=progress)
        return self._devices.complete(view)

    async def watch(self) -> tuple[Run, Subscriber]:
        """Return a snapshot, and a subscriber that receives later events."""
        async with self._lock:
            subscriber = self._subscribers.add()
            if self.state.status != "running":
                subscriber.close()
            return await self.view(), subscriber

    def unwatch(self, subscriber: Subscriber) -> None:
        """Remove a subscriber."""
        self._subscribers.remove(subscriber)

    def close(self, reason: MoonfedError) -> None:
        """Stop following: the coordinator stops, or now drives the run."""
        self._subscribers.close(reason)
        self._ended.set()
        self._changed.set()


def _ended(record: RunRecord) -> Status:
    """Return the status of a run that is no longer active."""
    return "running" if record.status == "paused" else record.status


def _load_committed(
    store: Store, blobs: BlobStore, record: RunRecord, manifest: Manifest, committed: int
) -> GlobalState | None:
    """Load the global state after `committed` rounds; None if another round was committed meanwhile. Blocking."""
    global_state = load_global_state(store, blobs, record, manifest)
    newest = store.latest_round(record.run, "committed")
    return global_state if (newest.id.round if newest else 0) == committed else None
