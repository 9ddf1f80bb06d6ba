"""Drives one run: feeds events to its state machine one at a time, records the commands, then carries them out.

Nothing becomes visible before it is durable. The database and the arithmetic run in threads; timers are monotonic.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from moonfed.blobs.store import BlobRef
from moonfed.bundle.manifest import MODEL
from moonfed.control.runs import Run
from moonfed.coordinator.devices.eligibility import EligibleDevices
from moonfed.coordinator.devices.liveness import Liveness, StallDetector
from moonfed.coordinator.devices.notifications import notify_participants
from moonfed.coordinator.devices.sessions import Sessions
from moonfed.coordinator.observer import SILENT, Observer
from moonfed.coordinator.records import (
    NOT_MEASURED,
    AttemptId,
    AttemptMeasurements,
    DeviceReport,
    EligibilityReport,
    RoundRecord,
    RunRecord,
    attempt_id,
)
from moonfed.coordinator.rounds.early_stop import is_done
from moonfed.coordinator.rounds.events import (
    Abandon,
    Assign,
    Command,
    Declined,
    DeviceLeft,
    DeviceOffline,
    DeviceOnline,
    End,
    Event,
    Lose,
    PauseRequested,
    Reduce,
    Reduced,
    Resumed,
    ResumeRequested,
    StartTimer,
    StopRequested,
    UpdateAccepted,
    UpdateRejected,
)
from moonfed.coordinator.rounds.phases import Moments
from moonfed.coordinator.rounds.protocol import round_protocol
from moonfed.coordinator.rounds.state import State
from moonfed.coordinator.runs.acceptance import needed_attempts, phase, rejection_reason
from moonfed.coordinator.runs.assignments import assigned_blobs, build_assignment, devices_keep_state
from moonfed.coordinator.runs.close_round import RoundResult, close_round, trained_attempt
from moonfed.coordinator.runs.events import EventPublisher
from moonfed.coordinator.runs.persistence import CommandRecorder
from moonfed.coordinator.runs.resume import RunContext
from moonfed.coordinator.runs.rollback import damage
from moonfed.coordinator.runs.round_clock import RoundClock
from moonfed.coordinator.runs.round_eta import RoundEta
from moonfed.coordinator.runs.round_meter import RoundMeter
from moonfed.coordinator.runs.round_trace import RoundTrace
from moonfed.coordinator.runs.subscribers import Subscriber
from moonfed.coordinator.runs.timers import Timers
from moonfed.coordinator.runs.view import run_view
from moonfed.coordinator.storage.leases import LeaseLost
from moonfed.coordinator.storage.opening import Storage
from moonfed.coordinator.support.tasks import BackgroundTasks, in_thread
from moonfed.coordinator.updates.admission import Admission, Admissions
from moonfed.coordinator.updates.group_commit import GroupCommit, PendingUpdate
from moonfed.coordinator.updates.quota import ByteQuota
from moonfed.coordinator.updates.receipts import event_of, is_news
from moonfed.coordinator.updates.validation import largest_files
from moonfed.errors import MoonfedError, Unavailable, WrongState

REMOVED = "an operator removed or renamed the device, or changed its labels"
RoundObserver = Callable[[RoundRecord], object]  # called once an attempt has ended; it neither raises nor blocks
CHECK_SECONDS = 60.0  # that a run waits at most for the answers of the devices online when it starts

_log = logging.getLogger(__name__)


class StepListener(Protocol):
    """A part of a driver that follows the state machine."""

    def on_step(self, event: Event, state: State, commands: Sequence[Command]) -> None:
        """Follow a step to `state`, whose commands are durable and about to be executed; neither raise nor block."""


class RunDriver:
    """Driver of one run: state machine, timers, assignments and reductions."""

    def __init__(
        self,
        *,
        record: RunRecord,
        context: RunContext,
        storage: Storage,
        sessions: Sessions,
        liveness: Liveness,
        background: BackgroundTasks,
        restart: Callable[[str], Awaitable[None]],
        observers: Sequence[RoundObserver] = (),
        observer: Observer = SILENT,
    ) -> None:
        self._observer = observer
        self.record = record
        self.manifest = context.manifest
        self.state = context.state
        self._protocol, self._global_states = round_protocol(record.settings), context.global_states
        self._draw = context.draw
        self._storage = storage
        self._store = storage.store
        self._sessions = sessions
        self._background, self._restart = background, restart
        self._replicas_report = storage.store.reports.shared and not self._protocol.leaseholder_only
        self._lock = asyncio.Lock()
        self._timers = Timers(lambda event: background.spawn(self._deliver(event)))
        self._stall_detector = StallDetector(
            liveness, record.settings.heartbeat_timeout, lambda event: background.spawn(self._deliver(event))
        )
        self._eta, self._observers = RoundEta(), observers
        self._meter = RoundMeter(
            RoundClock(), self._stall_detector.fraction, asynchronous=self._protocol.reports_outlive_rounds
        )
        self._publisher = EventPublisher(record.run, observer)
        self._trace = RoundTrace(record, reports_outlive_rounds=self._protocol.reports_outlive_rounds)
        self._listeners: Sequence[StepListener] = (
            self._stall_detector,
            self._trace,
            self._eta,
            self._publisher,
            self._meter,
        )
        eligibility = storage.store.eligibility
        self._devices = EligibleDevices(sessions, record, context.manifest, eligibility, driven=True)
        self._devices.load(context.eligibility)
        self._begun = False  # whether the state machine knows the devices
        self._recorder = CommandRecorder(storage.store, record.run)
        self.largest_files = largest_files(context.manifest, record.settings.encodings.up)
        self._admissions = Admissions(self._rejection_reason, ByteQuota(sum(self.largest_files.values())))
        self._group_commit = GroupCommit(
            storage.store.reports, storage.spool, late_reports=self._protocol.reports_outlive_rounds
        )

    # Devices and other replicas

    async def start(self) -> None:
        """Begin, or resume after a restart, with the devices that are online, once they have answered."""
        self._stall_detector.watch_round(self.state.open, resumed=True)
        async with self._lock:
            await self._resume_measurements()
            await self._vacate()
            await self._devices.load_excluded()
        self._devices.sessions()  # asks those that have yet to answer
        if self.state.open or self._devices.all_answered.is_set():
            await self._begin()
        else:
            self._publisher.waiting(self._waiting())
            self._background.spawn(self._begin_when_answered())

    async def _resume_measurements(self) -> None:
        """Time and trace the open round from its opening, before the coordinator started."""
        current = self.state.open
        found = await in_thread(self._store.round, attempt_id(self.record.run, current)) if current else None
        if current and found:
            seconds_ago = max(0.0, time.time() - found.opened)
            self._meter.clock.open((current.round, current.attempt), seconds_ago, resumed=True)
            self._trace.resume(attempt_id(self.record.run, current), found.opened)

    async def _begin_when_answered(self) -> None:
        with suppress(asyncio.TimeoutError):  # the others join later rounds
            await asyncio.wait_for(self._devices.all_answered.wait(), CHECK_SECONDS)
        if not self._recorder.closed:
            await self._begin()

    async def _begin(self) -> None:
        online = {session.device: session.info.samples for session in self._devices.sessions()}
        await self._finish_if_done()
        await self._deliver(Resumed(online=online))  # all at once: a cohort is drawn from all of them
        self._begun = True
        for session in self._sessions.all():
            await self.refresh(session.device)
        for device in online:  # including those that have left since
            await self.refresh(device)

    async def refresh(self, device: str) -> None:
        """Update the run's knowledge of whether a device is online; the order of such calls does not matter."""
        async with self._lock:
            await self._refresh(device)

    async def _refresh(self, device: str) -> None:
        session = self._devices.find(device)
        if not self._begun:
            return
        with suppress(LeaseLost):  # its new driver knows the device, too
            if session:
                await self._advance(DeviceOnline(device=device, samples=session.info.samples))
            elif self._sessions.has_left(device):
                await self._advance(DeviceLeft(device=device))
            else:
                await self._advance(DeviceOffline(device=device, ineligible=self._devices.ineligibility(device)))

    async def catch_up(self) -> None:
        """Apply the reports and metrics that other replicas have recorded."""
        await self._finish_if_done()
        async with self._lock:
            for device in await self._devices.catch_up():
                await self._refresh(device)
            current = self.state.open
            if not self._replicas_report or current is None or current.reducing:
                return
            attempt = attempt_id(self.record.run, current)
            for report in await asyncio.to_thread(self._store.reports.of_attempt, attempt):
                if is_news(current, report):
                    await self._apply_report(report)

    # Reports: updates, rejected updates, declined assignments

    def admit(self, attempt: AttemptId, device: str) -> Admission:
        """Admit a device's update; the admission may be rejected at once, and is withdrawn when the round closes."""
        reported = self.state.open is None or device in self.state.open.reported
        admission = self._admissions.admit(attempt, device, may_have_receipt=reported or self._store.reports.shared)
        if not admission.rejection:
            self._meter.clock.upload_began(device, (attempt.round, attempt.attempt))
        return admission

    async def count(self, admission: Admission, receipt: DeviceReport, files: Mapping[str, Path]) -> None:
        """Count a checked update, whose files, by role, are durable; counting it again changes nothing.

        Raises AlreadyExists if another update of the device counts, or the admission's rejection.
        """
        update = PendingUpdate(admission=admission, receipt=receipt, files=files)
        is_first = not self._group_commit
        self._group_commit.add(update)
        if is_first:
            self._background.spawn(self._commit_updates())
        await update.done

    async def _commit_updates(self) -> None:
        async with self._lock:
            for update in await self._group_commit.commit():
                await self._apply_update(update)
        if self._group_commit:
            self._background.spawn(self._commit_updates())

    async def _apply_update(self, update: PendingUpdate) -> None:
        try:
            await self._apply_recorded(update.receipt)
        except Exception as problem:
            update.settle(problem)
        else:
            update.settle(None)

    async def reject(self, report: DeviceReport) -> None:
        """Record that a device's update failed its checks, unless an earlier update of the device counts."""
        async with self._lock:
            self._require_admissible(report)
            if not self._has_reported(report):
                await self._record_report(report)

    async def report_eligibility(self, report: EligibilityReport) -> bool:
        """Record whether a device is eligible for the run; return False for a repetition."""
        is_news = await self._devices.record(report)
        await self.refresh(report.device)
        return is_news

    async def forget_removed(self, known: Collection[str]) -> None:
        """Forget the answers of devices that operators removed, renamed or revoked, and expect no update from them.

        `known`: the names of the others.
        """
        await self._devices.forget_removed(known)
        async with self._lock:
            await self._vacate()

    async def _vacate(self) -> None:
        """Decline for cohort members that no longer participate, so that no new device of the name replaces them."""
        awaited = self._protocol.awaited(self.state)
        if not awaited or self._recorder.closed:
            return
        participants = await in_thread(self._store.participants, self.record.run)
        for device in sorted(awaited.keys() - participants):
            round_, attempt = awaited[device]
            id_ = AttemptId(run=self.record.run, round=round_, attempt=attempt)
            report = DeviceReport(id=id_, device=device, outcome="declined", reason=REMOVED)
            with suppress(WrongState, LeaseLost):  # it has delivered its update, or its driver is another replica
                await self._record_report(report)
                self._observer.update_ended("declined", "removed")

    async def decline(self, report: DeviceReport) -> None:
        """Record that a device will deliver no update. Idempotent."""
        async with self._lock:
            current = self.state.open
            if current and self.needs(report.id) and report.device in current.declined:
                return
            self._require_admissible(report)
            if self._has_reported(report):
                raise WrongState(f"{report.device!r} has already delivered its update for {report.id}")
            await self._record_report(report)

    def _require_admissible(self, report: DeviceReport) -> None:
        if problem := self._rejection_reason(report.id, report.device):
            raise problem

    def _has_reported(self, report: DeviceReport) -> bool:
        return self.state.open is not None and report.device in self.state.open.reported

    async def _record_report(self, report: DeviceReport) -> None:
        reports = self._store.reports
        await asyncio.to_thread(reports.replace if self._protocol.reports_outlive_rounds else reports.record, report)
        await self._apply_recorded(report)

    async def _apply_recorded(self, report: DeviceReport) -> None:
        """Apply a durable report, which counts even if another replica drives the run by now."""
        with suppress(LeaseLost):
            await self._apply_report(report)

    async def _apply_report(self, report: DeviceReport) -> None:
        self._publisher.report(report, self.state.open)
        self._meter.report(report)
        await self._advance(event_of(report))

    # Queries and requests

    def report(self, attempt: AttemptId, device: str, fraction: float) -> WrongState | None:
        """Publish a device's progress; return why the run no longer counts its update, if so."""
        if problem := self._rejection_reason(attempt, device):
            self._stall_detector.released(device)
            return problem
        self._stall_detector.progressed(device, fraction)
        self._publisher.progress(attempt, device, fraction)
        return None

    async def stop(self) -> None:
        """End the run; a round that is being reduced is still committed."""
        async with self._lock:
            await self._advance(StopRequested())

    async def set_paused(self, *, paused: bool) -> None:
        """Assign no more work while `paused`; work in progress is finished and counts."""
        async with self._lock:
            await self._advance(PauseRequested() if paused else ResumeRequested())

    def publish_metrics(self, round_: int, metrics: Mapping[str, float]) -> None:
        """Publish new metrics of a global model, which may end the run."""
        self._publisher.metrics(round_, metrics)
        self._background.spawn(self._finish_if_done())

    async def _finish_if_done(self) -> None:
        """End the run early if its settings say so; if the database cannot be read now, the next look tells."""
        settings = self.record.settings
        if not settings.may_end_early or self.state.stopping:
            return
        try:
            reason = is_done(settings, self.record.metric, await in_thread(self._store.metrics_of_run, self.record.run))
        except Exception as error:  # such as a brief outage of the database
            _log.warning("run %s: cannot look whether it is done: %s", self.record.run, error)
            return
        if reason:
            _log.info("run %s is finished early: %s", self.record.run, reason)
            await self._deliver(StopRequested(status="finished"))

    def base_model(self, attempt: AttemptId) -> BlobRef:
        """Return the global model that the attempt started from; raises WrongState if that round has ended."""
        return self._global_states[attempt.round].blobs[MODEL]

    def eligible(self) -> Set[str]:
        """Return the online devices that may train the run."""
        return self._devices.names()

    def progress(self) -> dict[str, float]:
        """Return the reported progress of each device that the open round waits for, as a fraction; 0 if none yet."""
        return self._stall_detector.progress()

    def needs(self, attempt: AttemptId) -> bool:
        """Return True if updates of that attempt may still arrive, or wait to be reduced."""
        return attempt in needed_attempts(self.record, self.state)

    def _rejection_reason(self, attempt: AttemptId, device: str) -> WrongState | None:
        return rejection_reason(self.record, self.state, self._eta, attempt, device)

    async def view(self) -> Run:
        """Return the run as operators see it."""
        record, problems = replace(self.record, status=self.state.run_status), self._devices.problems()
        silence, progress = self._stall_detector.silence(), self.progress()
        if record.status == "failed":
            record = await asyncio.to_thread(self._store.run, record.run)  # which has the reason
        view = await asyncio.to_thread(run_view, self._store, record, self._shown_state(), problems, silence, progress)
        return self._devices.complete(view)

    async def watch(self) -> tuple[Run, Subscriber]:
        """Return a snapshot, and a subscriber to every later event."""
        async with self._lock:
            subscriber = self._publisher.subscribers.add()
            if self.state.status != "running":
                subscriber.close()
            return await self.view(), subscriber

    def unwatch(self, subscriber: Subscriber) -> None:
        """Remove a subscriber."""
        self._publisher.subscribers.remove(subscriber)

    def close(self, reason: MoonfedError) -> None:
        """Stop driving the run, which resumes after a restart or at another replica."""
        self._recorder.close()
        self._timers.cancel()
        self._stall_detector.close()
        self._publisher.subscribers.close(reason)

    # From events to commands

    async def _deliver(self, event: Event) -> None:
        async with self._lock:
            if not self._recorder.closed:
                with suppress(LeaseLost):  # the event is for the run's new driver
                    await self._advance(event)

    async def _advance(self, event: Event) -> None:
        """Make one step: record the commands, then tell the listeners, then execute the commands.

        The caller holds the lock.
        """
        state, commands = self._protocol.step(self.record.settings, self._draw, self.state, event)
        await self._recorder.record(commands, self._abandoning(commands))
        previous, self.state = self.state, state
        for listener in self._listeners:
            listener.on_step(event, state, commands)
        self._review_admissions(previous, event)
        for attempt in needed_attempts(self.record, previous) - needed_attempts(self.record, state):
            # Its admissions are withdrawn: a concurrent update that recreates the directory notices and deletes it.
            await asyncio.to_thread(self._storage.spool.delete, attempt)
        for command in commands:
            self._perform(command)
        within_round = state.open and not state.reduction_error
        self._publisher.waiting("" if within_round else self._waiting())

    def _abandoning(self, commands: Sequence[Command]) -> AttemptMeasurements:
        """Return the figures of the attempt that one of the commands abandons."""
        abandon = next((command for command in commands if isinstance(command, Abandon)), None)
        if abandon is None or self.state.open is None:
            return NOT_MEASURED
        lost = frozenset(command.device for command in commands if isinstance(command, Lose))
        return self._meter.abandoning(self.state, abandon, lost, self._assigned_bytes(abandon.round))

    def _assigned_bytes(self, round_: int) -> int:
        """Return the size of the files that a device is assigned in a round."""
        return sum(ref.size for ref in assigned_blobs(self.manifest, self._global_states[round_]).values())

    def _waiting(self) -> str:
        return self._protocol.waiting(self.record.settings, self._shown_state(), self._devices.problems())

    def _shown_state(self) -> State:
        """Return the state with the eligible devices, which the state machine learns of when the run begins."""
        if self._begun:
            return self.state
        return replace(self.state, online=frozenset(session.device for session in self._devices.sessions()))

    def _review_admissions(self, previous: State, event: Event) -> None:
        if phase(previous) != phase(self.state):
            self._admissions.review()
        elif isinstance(event, UpdateAccepted | UpdateRejected | Declined):
            self._admissions.review_device(event.device)

    def _perform(self, command: Command) -> None:
        match command:
            case Assign():
                self._assign(command)
            case StartTimer():
                self._timers.start(command)
            case Reduce():
                measured = self._meter.reducing(self.state, command, self._assigned_bytes(command.round))
                self._background.spawn(self._reduce(command, *measured))
            case Abandon():
                self._background.spawn(self._check_global_state())
                self._background.spawn(self._observe(attempt_id(self.record.run, command)))
            case End():
                self._stall_detector.close()
                self._background.spawn(self._end())

    def _assign(self, command: Assign) -> None:
        session = self._devices.find(command.device)
        if session is None:  # offline or to be checked again since the event; the run is about to be notified
            return
        self._meter.clock.assigned(command.device, (command.round, command.attempt))
        attempt, global_state = attempt_id(self.record.run, command), self._global_states[command.round]
        assignment = build_assignment(attempt, command.device, self.record, self.manifest, global_state)
        # The state machine assigns again whenever a device is reported online, as after it answered a check twice.
        self._stall_detector.assigned(command.device, repeated=not session.assign(assignment))

    async def _reduce(self, command: Reduce, moments: Moments | None, measured: AttemptMeasurements) -> None:
        with self._observer.reducing(), self._trace.reducing(attempt_id(self.record.run, command)):
            outcome = await asyncio.to_thread(
                close_round,
                self._storage,
                self.record.run,
                command,
                self.manifest,
                self.record.settings,
                global_states=self._global_states,
                moments=moments,
                measured=measured,
            )
        if isinstance(outcome, RoundResult):
            self._commit(command, outcome)
            self._meter.committed(command, measured)
            self._background.spawn(self._observe(attempt_id(self.record.run, command)))
            self._devices.exclude(outcome.excluded)
            for device in outcome.excluded:  # before the next round is drawn
                await self.refresh(device)
            await self._finish_if_done()
            await self._deliver(Reduced(round=command.round, attempt=command.attempt))
        else:
            await self._deliver(outcome)

    def _commit(self, command: Reduce, result: RoundResult) -> None:
        """Make a durable global state the newest one."""
        attempt = attempt_id(self.record.run, command)
        stateful = result.devices if devices_keep_state(self.manifest, self.record.settings) else ()
        counted = {device: trained_attempt(attempt, command, device) for device in stateful}
        clip_norm = result.release.next_clip_norm if result.release else 0.0
        self._global_states.add(attempt, self._global_states[command.round].successor(counted, result.blobs, clip_norm))
        self._trace.committed(attempt, len(result.devices), len(result.incidents))
        self._publisher.commit(attempt, result.devices, result.blobs[MODEL], result.metrics, result.incidents)
        if result.holdout:
            self._publisher.metrics(command.round - 1, result.holdout)

    async def _observe(self, attempt: AttemptId) -> None:
        """Show the record of an attempt that has ended to the observers."""
        if not self._observers:
            return
        if found := await asyncio.to_thread(self._store.round, attempt):
            for observe in self._observers:
                observe(found)

    async def _check_global_state(self) -> None:
        """Restart the run if its round was abandoned because its devices fetched a damaged file."""
        if self.state.status != "running" or self.state.stopping:
            return
        blobs = self._global_states[self.state.committed + 1].blobs
        if await in_thread(damage, self._storage.blobs, blobs):
            async with self._lock:
                self.close(
                    Unavailable(
                        f"run {self.record.run!r} is being restarted, because a file of its newest model is damaged",
                        field="run",
                        value=self.record.run,
                    )
                )
            await self._restart(self.record.run)

    async def _end(self) -> None:
        view = await self.view()
        self._publisher.end(view)
        await notify_participants(view, self._store, self._sessions)
