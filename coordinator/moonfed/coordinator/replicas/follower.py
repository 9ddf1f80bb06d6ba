"""Follows a run that another replica drives: offers its work to the devices that attend here, and takes their answers.

What it knows comes from the database, a moment late; what it takes, it takes in a transaction that sees the round open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from moonfed.blobs import BlobRef
from moonfed.coordinator.devices.eligibility import misfit
from moonfed.coordinator.devices.liveness import Liveness
from moonfed.coordinator.devices.notifications import announce
from moonfed.coordinator.devices.sessions import DeviceSession, Sessions
from moonfed.coordinator.records import AttemptId, DeviceReport, RunEvent, RunRecord, RunView, attempt_id
from moonfed.coordinator.replicas.snapshot import RunSnapshot, events_between, look
from moonfed.coordinator.rounds.protocol import round_protocol
from moonfed.coordinator.rounds.state import OpenRound, State
from moonfed.coordinator.runs.admission import needed_attempts, objection
from moonfed.coordinator.runs.assignments import GlobalState, build_assignment, load_global_state
from moonfed.coordinator.runs.round_eta import RoundEta
from moonfed.coordinator.runs.subscribers import Subscriber, Subscribers
from moonfed.coordinator.runs.view import run_view
from moonfed.coordinator.storage.blobs.blob_store import BlobStore
from moonfed.coordinator.storage.opening import Storage
from moonfed.coordinator.storage.store import Store
from moonfed.coordinator.support.tasks import BackgroundTasks, in_thread
from moonfed.errors import MoonfedError, NotFound, Unavailable, WrongState
from moonfed.manifest import MODEL, Manifest

STOP_SECONDS = 10.0  # for which an operator waits until the run's holder has stopped it


class RunFollower:
    """One followed run."""

    def __init__(
        self,
        *,
        record: RunRecord,
        manifest: Manifest,
        storage: Storage,
        attendance: Sessions,
        liveness: Liveness,
        background: BackgroundTasks,
    ) -> None:
        self.record, self.manifest, self.state = record, manifest, round_protocol(record.settings).first
        self._store, self._blobs, self._spool = storage.store, storage.blobs, storage.spool
        self._attendance, self.background = attendance, background
        self._liveness, self._protocol = liveness, round_protocol(record.settings)
        self._lock = asyncio.Lock()
        self._seen: RunSnapshot | None = None
        self._standing: GlobalState | None = None
        self._standing_after = -1  # that so many committed rounds led to
        self._standing_attempt = 0  # the one that it was loaded for: the one before may have found it damaged
        self._watchers, self._tempo = Subscribers(), RoundEta()
        self._fractions: dict[str, float] = {}  # the largest that each device has reported in the open round
        self._ended = asyncio.Event()

    # What happens to the run

    async def start(self) -> None:
        """Start following."""
        await self.catch_up()

    async def refresh(self, device: str) -> None:
        """Offer work to a device whose connection changed; the run's holder learns of it from the database."""
        async with self._lock:
            self._offer([device])

    async def catch_up(self) -> None:
        """Read the run's state, publish what changed, and offer the open round's work."""
        async with self._lock:
            if self.state.status != "running":
                return
            try:
                seen = await in_thread(look, self._store, self.record.run, self._seen)
            except NotFound:  # stopped and deleted since we looked last
                await self._end(replace(self.record, status="stopped"))
                return
            await self._stand(seen.state)
            await self._show(seen)

    async def _stand(self, state: State) -> None:
        """Load the global state that the open round's devices begin with."""
        if state.open is None or self._protocol.holder_only:
            return
        if (self._standing_after, self._standing_attempt) != (state.committed, state.open.attempt):
            work = (self._store, self._blobs, self.record, self.manifest, state.committed)
            self._standing = await in_thread(_standing_after, *work)
            self._standing_after = state.committed if self._standing else -1
            self._standing_attempt = state.open.attempt

    async def _show(self, seen: RunSnapshot) -> None:
        before, self._seen = self._seen, seen
        if seen.record.status != "running":
            await self._end(seen.record, before)
            return
        if self._opens(seen.state.open):
            self._fractions.clear()
        self.state = seen.state
        self._tempo.follow(self.state.open)
        self._tell(before, seen)
        self._offer(self.state.open.outstanding if self.state.open else ())

    def _tell(self, before: RunSnapshot | None, seen: RunSnapshot) -> None:
        for event in events_between(before, seen) if before else ():
            self._watchers.tell(event)

    async def _end(self, record: RunRecord, before: RunSnapshot | None = None) -> None:
        if before and self._seen:
            self._tell(before, self._seen)
        self.record, self.state = record, replace(self.state, open=None, status=record.status)
        self._ended.set()
        with suppress(NotFound):
            view = await self.view()
            self._watchers.tell(RunEvent(kind="ended", run=view))
            await announce(view, self._store, self._attendance)
        self._watchers.close()

    def _opens(self, current: OpenRound | None) -> bool:
        past = self.state.open
        return current is not None and (past is None or (past.round, past.attempt) != (current.round, current.attempt))

    def _offer(self, devices: tuple[str, ...] | list[str]) -> None:
        current, here = self.state.open, self._attendance.here()
        if (
            current is None
            or current.overdue
            or self._protocol.holder_only
            or self._standing is None
            or self._standing_after != current.round - 1
        ):
            return
        id_ = attempt_id(self.record.run, current)
        for device in devices:
            session = here.get(device)
            if session and device in current.outstanding and self._misfit(session) is None:
                session.offer(build_assignment(id_, device, self.record, self.manifest, self._standing))

    async def accept(self, report: DeviceReport, checked: Mapping[str, Path]) -> None:
        """Count an update whose files, by role, are checked and durable; idempotent.

        Raises AlreadyExists if a different one stands, WrongState if the round does not want it any more.
        """
        if not await asyncio.to_thread(self._store.reports.has_receipt, report.id, report.device, report.blobs):
            self.require_wanted(report.id, report.device)
            await asyncio.to_thread(self._put_update, report, checked)
            await self._take(report)

    def _put_update(self, report: DeviceReport, checked: Mapping[str, Path]) -> None:
        self._spool.put(report.id, report.device, checked)
        self._spool.sync([(report.id, report.device)])

    async def refuse(self, report: DeviceReport) -> None:
        """Record that a device's update failed the checks."""
        self.require_wanted(report.id, report.device)
        with suppress(WrongState):  # an earlier update of this device stands
            await self._take(report)

    async def decline(self, report: DeviceReport) -> None:
        """Record that a device declined its assignment; idempotent."""
        current = self.state.open
        if current and not self.is_over(report.id) and report.device in current.declined:
            return
        self.require_wanted(report.id, report.device)
        await self._take(report)

    async def _take(self, report: DeviceReport) -> None:
        """Record a report in a transaction that sees the round open, and read the result at once."""
        try:
            await asyncio.to_thread(self._store.reports.record, report)
        finally:
            await self.catch_up()

    def report(self, attempt: AttemptId, device: str, fraction: float) -> WrongState | None:
        """Publish a device's progress; return the reason if its update is no longer accepted."""
        problem = self._objection(attempt, device)
        if problem is None:
            if fraction > self._fractions.get(device, -1.0):
                self._fractions[device] = fraction
                self._liveness.sign(device)
            event = RunEvent(
                kind="progress", round=attempt.round, attempt=attempt.attempt, device=device, fraction=fraction
            )
            self._watchers.tell(event)
        return problem

    async def stop(self) -> None:
        """Ask the run's holder to stop it, and wait up to STOP_SECONDS."""
        await asyncio.to_thread(self._store.run_summaries.ask_to_stop, self.record.run)
        with suppress(asyncio.TimeoutError):  # it will, or whoever takes the run over
            await asyncio.wait_for(self._ended.wait(), STOP_SECONDS)

    def measured(self, round_: int, metrics: Mapping[str, float]) -> None:
        """Publish new metrics to subscribers."""
        self._watchers.tell(RunEvent(kind="metrics", round=round_, metrics=metrics))

    # What others ask

    def begun_with(self, attempt: AttemptId) -> BlobRef:
        """Return the global model that the open attempt's devices were given."""
        if self._standing is None or self._standing_after != attempt.round - 1:
            raise WrongState(f"{attempt} is not open any more")
        return self._standing.blobs[MODEL]

    def _misfit(self, session: DeviceSession) -> str | None:
        return misfit(session.introduction, self.manifest, self.record.settings)

    def _objection(self, attempt: AttemptId, device: str) -> WrongState | None:
        return objection(self.record, self.state, self._tempo, attempt, device)

    def is_over(self, attempt: AttemptId) -> bool:
        """Return True if no update of that attempt is accepted any longer."""
        return attempt not in needed_attempts(self.record, self.state)

    def may_have_receipt(self, attempt: AttemptId, device: str) -> bool:
        """Return True: other coordinators' receipts are in the database."""
        return True

    def require_wanted(self, attempt: AttemptId, device: str) -> None:
        """Raise WrongState, naming the run's current round, if an update is not accepted now."""
        if self._protocol.holder_only:
            raise Unavailable(
                f"run {self.record.run!r} is asynchronous: only the coordinator that drives it takes updates"
            )
        if problem := self._objection(attempt, device):
            raise problem

    async def view(self) -> RunView:
        """Return the operator's view of the run."""
        problems = {session.device: self._misfit(session) for session in self._attendance.sessions()}
        attending = frozenset(device for device, problem in problems.items() if problem is None)
        misfits = {device: problem for device, problem in problems.items() if problem}
        state = replace(self.state, attending=attending)
        return await asyncio.to_thread(run_view, self._store, self.record, state, misfits)

    async def watch(self) -> tuple[RunView, Subscriber]:
        """Return a snapshot, and a subscriber that receives later events."""
        async with self._lock:
            watcher = self._watchers.add()
            if self.state.status != "running":
                watcher.close()
            return await self.view(), watcher

    def unwatch(self, watcher: Subscriber) -> None:
        """Remove a subscriber."""
        self._watchers.remove(watcher)

    def close(self, reason: MoonfedError) -> None:
        """Stop following: the coordinator stops, or drives the run from now on."""
        self._watchers.close(reason)
        self._ended.set()


def _standing_after(
    store: Store, blobs: BlobStore, record: RunRecord, manifest: Manifest, committed: int
) -> GlobalState | None:
    """Load the global state after `committed` rounds; None if another round was committed meanwhile. Blocking."""
    standing = load_global_state(store, blobs, record, manifest)
    newest = store.latest_round(record.run, "committed")
    return standing if (newest.id.round if newest else 0) == committed else None
