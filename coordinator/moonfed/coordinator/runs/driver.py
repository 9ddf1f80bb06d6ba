"""Drives one run: feeds events to its state machine one at a time, keeps what follows, then shows and does it.

Nothing becomes visible before it is durable. The database and the arithmetic run in threads; timers are monotonic.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from moonfed.blobs import BlobRef
from moonfed.coordinator.devices.eligibility import EligibleDevices
from moonfed.coordinator.devices.liveness import Liveness, StallDetector
from moonfed.coordinator.devices.notifications import announce
from moonfed.coordinator.devices.sessions import Sessions
from moonfed.coordinator.records import AttemptId, DeviceReport, RunRecord, RunView, attempt_id
from moonfed.coordinator.rounds.events import (
    Abandon,
    Assign,
    Command,
    DeviceOffline,
    DeviceOnline,
    End,
    Event,
    Reduce,
    Reduced,
    Resumed,
    RetryDue,
    StartTimer,
    StopRequested,
)
from moonfed.coordinator.rounds.protocol import round_protocol
from moonfed.coordinator.runs.admission import needed_attempts, objection
from moonfed.coordinator.runs.assignments import build_assignment, devices_keep_state
from moonfed.coordinator.runs.close_round import Reduction, close_round
from moonfed.coordinator.runs.events import EventPublisher
from moonfed.coordinator.runs.persistence import CommandRecorder
from moonfed.coordinator.runs.resume import RunContext
from moonfed.coordinator.runs.rollback import damage
from moonfed.coordinator.runs.round_eta import RoundEta
from moonfed.coordinator.runs.subscribers import Subscriber
from moonfed.coordinator.runs.timers import Timers
from moonfed.coordinator.runs.view import run_view
from moonfed.coordinator.storage.leases import LeaseLost
from moonfed.coordinator.storage.opening import Storage
from moonfed.coordinator.support.tasks import BackgroundTasks, in_thread
from moonfed.coordinator.updates.group_commit import GroupCommit, PendingUpdate
from moonfed.coordinator.updates.receipts import event_of, unheard
from moonfed.errors import MoonfedError, Unavailable, WrongState
from moonfed.manifest import MODEL

_log = logging.getLogger(__name__)


class RunDriver:
    """One running run."""

    def __init__(
        self,
        *,
        record: RunRecord,
        footing: RunContext,
        storage: Storage,
        attendance: Sessions,
        liveness: Liveness,
        background: BackgroundTasks,
        begin_anew: Callable[[str], Awaitable[None]],
    ) -> None:
        self.record, self.manifest, self.state = record, footing.manifest, footing.state
        self._kind, self._standings = round_protocol(record.settings), footing.standings
        self._storage, self._attendance, self.background = storage, attendance, background
        self._store = storage.store
        self._replicas_report = storage.store.reports.shared and not self._kind.holder_only
        self._lock = asyncio.Lock()
        self._timers = Timers(lambda event: background.spawn(self._deliver(event)))
        self._patience = StallDetector(
            liveness, record.settings.patience_seconds, lambda event: background.spawn(self._deliver(event))
        )
        self._tempo = RoundEta()
        self._announcer = EventPublisher(record.run)
        self._devices = EligibleDevices(attendance, footing.manifest, record.settings)
        self._keeper = CommandRecorder(storage.store, record.run)
        self._begin_anew = begin_anew
        self._intake = GroupCommit(
            storage.store.reports, storage.spool, self._is_new, late_reports=self._kind.reports_outlive_rounds
        )

    # What happens to the run

    async def start(self) -> None:
        """Begins, or goes on after a restart, with the devices that attend."""
        self._patience.wait_for(self.state.open, resumed=True)
        here = {session.device: session.introduction.samples for session in self._devices.sessions()}
        await self._deliver(Resumed(attending=here))  # all at once: a cohort is drawn from all who are here
        for session in self._attendance.sessions():
            await self.refresh(session.device)
        for device in here:  # who left meanwhile
            await self.refresh(device)

    async def refresh(self, device: str) -> None:
        """Takes notice of whether a device attends now; the order of such calls does not matter."""
        async with self._lock:
            if session := self._devices.find(device):
                await self._advance(DeviceOnline(device=device, samples=session.introduction.samples))
            else:
                await self._advance(DeviceOffline(device=device))

    async def accept(self, report: DeviceReport, checked: Mapping[str, Path]) -> None:
        """Counts an update whose files, by role, were checked and are durable; doing so again changes nothing.

        Raises AlreadyExists if a different one stands, WrongState if the round does not want it any more.
        """
        arrival, taken_soon = PendingUpdate(report=report, checked=checked), bool(self._intake)
        self._intake.add(arrival)
        if not taken_soon:
            self.background.spawn(self._take_arrivals())
        await arrival.done

    async def _take_arrivals(self) -> None:
        """Takes all that wait when the run is free to."""
        async with self._lock:
            for arrival in await self._intake.keep():
                await self._tell_arrival(arrival)
        if self._intake:
            self.background.spawn(self._take_arrivals())

    async def _tell_arrival(self, arrival: PendingUpdate) -> None:
        try:
            await self._tell_taken(arrival.report)
        except Exception as problem:
            arrival.end(problem)
        else:
            arrival.end(None)

    def _is_new(self, report: DeviceReport) -> bool:
        """Whether an update has yet to be kept; raises what is to be said of one that is not wanted. Blocking."""
        known = self.may_have_receipt(report.id, report.device)
        if known and self._store.reports.has_receipt(report.id, report.device, report.blobs):
            return False
        self.require_wanted(report.id, report.device)
        return True

    async def refuse(self, report: DeviceReport) -> None:
        """Notes that a device's update did not pass the checks."""
        async with self._lock:
            self.require_wanted(report.id, report.device)
            if not self._has_reported(report):  # else an earlier update of this device stands
                await self._take(report)

    async def decline(self, report: DeviceReport) -> None:
        """Notes that a device will deliver no update; saying so again changes nothing."""
        async with self._lock:
            current = self.state.open
            if current and not self.is_over(report.id) and report.device in current.declined:
                return
            self.require_wanted(report.id, report.device)
            if self._has_reported(report):
                raise WrongState(f"{report.device!r} has already delivered its update for {report.id}")
            await self._take(report)

    def _has_reported(self, report: DeviceReport) -> bool:
        return self.state.open is not None and report.device in self.state.open.reported

    async def _take(self, report: DeviceReport) -> None:
        await asyncio.to_thread(self._put, report)
        await self._tell_taken(report)

    def _put(self, report: DeviceReport) -> None:
        """Keeps an answer; an asynchronous round's may come after it has closed."""
        reports = self._store.reports
        (reports.replace if self._kind.reports_outlive_rounds else reports.record)(report)

    async def _tell_taken(self, report: DeviceReport) -> None:
        """An answer is durable, and counts even if the run is another replica's by now."""
        with suppress(LeaseLost):
            await self._heard(report)

    async def _heard(self, report: DeviceReport) -> None:
        self._announcer.answered(report, self.state.open)
        await self._advance(event_of(report))

    async def catch_up(self) -> None:
        """Takes notice of answers that other replicas took."""
        async with self._lock:
            current = self.state.open
            if not self._replicas_report or current is None or current.reducing:
                return
            attempt = attempt_id(self.record.run, current)
            for report in await asyncio.to_thread(self._store.reports.of_attempt, attempt):
                if unheard(current, report):
                    await self._heard(report)

    def report(self, attempt: AttemptId, device: str, fraction: float) -> WrongState | None:
        """Passes progress on to those who watch; the reason if the device's update is no longer wanted."""
        if problem := self._objection(attempt, device):
            self._patience.freed(device)
            return problem
        self._patience.reported(device, fraction)
        self._announcer.progress(attempt, device, fraction)
        return None

    async def stop(self) -> None:
        """Ends the run; a round that is being reduced is still committed."""
        async with self._lock:
            await self._advance(StopRequested())

    def measured(self, round_: int, metrics: Mapping[str, float]) -> None:
        """Tells those who watch of new metrics."""
        self._announcer.measured(round_, metrics)

    # What others ask

    def begun_with(self, attempt: AttemptId) -> BlobRef:
        """The global model that the attempt's devices were given."""
        return self._standings[attempt.round].blobs[MODEL]

    def _objection(self, attempt: AttemptId, device: str) -> WrongState | None:
        return objection(self.record, self.state, self._tempo, attempt, device)

    def is_over(self, attempt: AttemptId) -> bool:
        """Whether no update of that attempt is wanted, or none any more."""
        return attempt not in needed_attempts(self.record, self.state)

    def may_have_receipt(self, attempt: AttemptId, device: str) -> bool:
        """Whether the device may have a receipt for an update of that attempt; if not, nobody needs to look."""
        current = self.state.open
        reported = current is None or device in current.reported
        return self._store.reports.shared or reported or self._objection(attempt, device) is not None

    def require_wanted(self, attempt: AttemptId, device: str) -> None:
        """Raises WrongState, naming the run's present round, if an update is not wanted now."""
        if problem := self._objection(attempt, device):
            raise problem

    async def view(self) -> RunView:
        """What an operator sees of the run."""
        record = replace(self.record, status=self.state.status)
        seen = dict(self._devices.misfits), self._patience.silence()
        return await asyncio.to_thread(run_view, self._store, record, self.state, *seen)

    async def watch(self) -> tuple[RunView, Subscriber]:
        """A snapshot, and a watcher that is told everything after it."""
        async with self._lock:
            watcher = self._announcer.watchers.add()
            if self.state.status != "running":
                watcher.close()
            return await self.view(), watcher

    def unwatch(self, watcher: Subscriber) -> None:
        """The watcher has gone."""
        self._announcer.watchers.remove(watcher)

    def close(self, reason: MoonfedError) -> None:
        """The coordinator stops; the run will go on after a restart."""
        self._keeper.close()
        self._timers.cancel()
        self._patience.close()
        self._announcer.watchers.close(reason)

    # From events to deeds

    async def _deliver(self, event: Event) -> None:
        async with self._lock:
            if not self._keeper.closed:
                await self._advance(event)

    async def _advance(self, event: Event) -> None:
        """One step: keep what follows, then show the new state, then act. The caller holds the lock."""
        state, commands = self._kind.step(self.record.settings, self.state, event)
        await self._keeper.keep(commands)
        before, self.state = needed_attempts(self.record, self.state), state
        self._patience.wait_for(state.open)
        self._tempo.follow(state.open)
        for attempt in before - needed_attempts(self.record, state):
            # Only now: whoever begins an upload looks at the state after making a directory, so none is left behind.
            await asyncio.to_thread(self._storage.spool.delete, attempt)
        for command in commands:
            self._perform(command)
        silent = state.open and not state.trouble
        self._announcer.waits("" if silent else self._kind.waiting(self.record.settings, state, self._devices.misfits))

    def _perform(self, command: Command) -> None:
        self._announcer.decided(command)
        match command:
            case Assign():
                self._assign(command)
            case StartTimer():
                self._timers.start(command)
                if isinstance(command.event, RetryDue):
                    self._tempo.rests(command.seconds)
            case Reduce():
                self.background.spawn(self._reduce(command))
            case Abandon():
                self.background.spawn(self._examine())
            case End():
                self._patience.close()
                self.background.spawn(self._end())

    def _assign(self, command: Assign) -> None:
        session = self._attendance.find(command.device)
        if session is None:  # gone meanwhile, which the run is about to be told
            return
        self._patience.asked(command.device)
        id_, standing = attempt_id(self.record.run, command), self._standings[command.round]
        session.offer(build_assignment(id_, command.device, self.record, self.manifest, standing))

    async def _reduce(self, command: Reduce) -> None:
        work = (self._storage, self.record.run, command, self.manifest, self.record.settings)
        outcome = await asyncio.to_thread(close_round, *work, standings=self._standings)
        if isinstance(outcome, Reduction):
            attempt, model = attempt_id(self.record.run, command), outcome.blobs[MODEL]
            keepers = outcome.devices if devices_keep_state(self.manifest, self.record.settings) else ()
            latest = {device: replace(attempt, round=command.bases.get(device, attempt.round)) for device in keepers}
            self._standings.after(attempt, self._standings[command.round].after(latest, outcome.blobs))
            self._announcer.committed(attempt, outcome.devices, model, outcome.metrics, outcome.incidents)
            if outcome.holdout:
                self._announcer.measured(command.round - 1, outcome.holdout)
            await self._deliver(Reduced(round=command.round, attempt=command.attempt))
        else:
            await self._deliver(outcome)

    async def _examine(self) -> None:
        """Looks whether the round was abandoned because its devices were given something damaged."""
        if self.state.status != "running" or self.state.stopping:
            return
        blobs = self._standings[self.state.committed + 1].blobs
        if await in_thread(damage, self._storage.blobs, blobs):
            async with self._lock:
                self.close(Unavailable(f"run {self.record.run!r} goes on from an earlier model; watch again"))
            await self._begin_anew(self.record.run)

    async def _end(self) -> None:
        view = await self.view()
        self._announcer.ended(view)
        await announce(view, self._store, self._attendance)
