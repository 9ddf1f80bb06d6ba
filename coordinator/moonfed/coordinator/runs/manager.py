"""The running runs of one coordinator: each is driven, followed, or suspended because of a damaged file."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import replace

from moonfed.bundle.manifest import Manifest, plan_files
from moonfed.control.runs import Run
from moonfed.coordinator.devices.eligibility import groups, incompatibility, ineligible
from moonfed.coordinator.devices.liveness import Liveness
from moonfed.coordinator.devices.notifications import notify_participants
from moonfed.coordinator.devices.sessions import DeviceInfo, Sessions
from moonfed.coordinator.observer import SILENT, Observer
from moonfed.coordinator.records import AttemptId, EligibilityReport, RunRecord
from moonfed.coordinator.rounds.state import State
from moonfed.coordinator.rounds.status_text import HAS_ENDED
from moonfed.coordinator.runs.acceptance import needed_attempts
from moonfed.coordinator.runs.create import NewRun, add_run
from moonfed.coordinator.runs.driver import RoundObserver, RunDriver
from moonfed.coordinator.runs.follower import RunFollower
from moonfed.coordinator.runs.handle import RunHandle
from moonfed.coordinator.runs.resume import RunContext, new_run_context, resumed_run_context
from moonfed.coordinator.runs.suspended import SuspendedRuns
from moonfed.coordinator.runs.view import run_view
from moonfed.coordinator.storage.opening import Storage
from moonfed.coordinator.storage.recovery import recovered_state
from moonfed.coordinator.storage.transient_errors import as_transient
from moonfed.coordinator.support.tasks import BackgroundTasks, in_thread
from moonfed.errors import Corrupt, MoonfedError, NotFound, Unavailable, VersionMismatch, WrongState
from moonfed.fleet.class_bits import absent_classes

_log = logging.getLogger(__name__)
RETRY_SECONDS = 5.0  # between attempts to resume a run whose files are unavailable


class RunManager:
    """The runs by name, and the changes of who drives them. Lives on one event loop."""

    def __init__(
        self,
        storage: Storage,
        sessions: Sessions,
        liveness: Liveness,
        background: BackgroundTasks,
        observer: Observer = SILENT,
    ) -> None:
        self._observer = observer
        self._storage = storage
        self._store = storage.store
        self._blobs = storage.blobs
        self._sessions = sessions
        self._liveness = liveness
        self._background = background
        self._served: dict[str, RunHandle] = {}
        self.round_observers: list[RoundObserver] = []  # of the attempts that this coordinator drives to their end
        self.suspended = SuspendedRuns(storage.store, storage.spool)
        self._changing = asyncio.Lock()
        self.dismissed = False

    @property
    def served(self) -> Mapping[str, RunHandle]:
        """The running runs, driven or followed."""
        return self._served

    @property
    def driven(self) -> set[str]:
        """The names of the runs that this coordinator drives, suspended ones included."""
        return {run for run, served in self._served.items() if isinstance(served, RunDriver)} | self.suspended.names

    async def open(self) -> None:
        """Delete the spooled updates that no running run needs any longer."""
        states = await asyncio.to_thread(self._running_states)
        attempts = [attempt for record, state in states for attempt in needed_attempts(record, state)]
        await asyncio.to_thread(self._storage.spool.delete_local_except, attempts)

    async def resume_all(self) -> None:
        """Resume every run that was running when the coordinator ended."""
        for record, state in await asyncio.to_thread(self._running_states):
            await self._resume_or_wait(record, state)

    def _running_states(self) -> list[tuple[RunRecord, State]]:
        running = [record for record in self._store.runs() if record.active]
        return [(record, recovered_state(self._store, record.run)) for record in running]

    def dismiss(self, reason: MoonfedError) -> None:
        """Prepare to stop: end subscriptions, and ignore devices that leave."""
        self.dismissed = True
        for served in self._served.values():
            served.close(reason)

    # Queries

    async def find(self, run: str, attempt: AttemptId | None = None) -> RunHandle | None:
        """Return a running run, or None for one that has ended; raises NotFound, or WrongState if it is suspended.

        `attempt`: the attempt that the call is about; a follower that does not know it catches up first.
        """
        if run in self.suspended:
            raise self.suspended.error(run)
        served = self._served.get(run)
        if served is None:
            record = await asyncio.to_thread(self._store.run, run)
            served = await self._settled(run) if record.active else None
        elif attempt and not served.needs(attempt):
            await served.catch_up()
        if served and served.state.status != "running":
            self._served.pop(run, None)
            return None
        return served

    async def _settled(self, run: str) -> RunHandle | None:
        """Wait until a run has changed hands, and return its new handle."""
        async with self._changing:
            served = self._served.get(run)
        if served is None and await asyncio.to_thread(self._store.leases.held_elsewhere, run):
            await self.follow(run)
            served = self._served.get(run)
        if run in self.suspended:
            raise self.suspended.error(run)
        if served is None and await self._still_running(run):
            raise Unavailable(f"run {run!r} cannot resume yet; try again", field="run", value=run)
        return served

    async def view(self, run: str) -> Run:
        """Return the run as operators see it, running or not; raises NotFound."""
        if run in self.suspended:
            return await asyncio.to_thread(self.suspended.view, run)
        try:
            served = await self.find(run)
        except Unavailable as error:
            return replace(await asyncio.to_thread(self._past_view, run), waiting=str(error))
        return await (served.view() if served else asyncio.to_thread(self._past_view, run))

    def _past_view(self, run: str) -> Run:
        record, reports = self._store.run(run), self._store.eligibility.of_run(run)
        return replace(
            run_view(self._store, record, None),
            ineligible=groups(ineligible(reports)),
            absent_classes=self._absent_classes(record, reports) if record.settings.asks_classes else (),
        )

    def _absent_classes(self, record: RunRecord, reports: Mapping[str, EligibilityReport]) -> tuple[str, ...]:
        """Return the classes that no eligible device had; none if the manifest, which names them, is damaged."""
        eligible = [report.classes for report in reports.values() if not report.reason]
        try:
            return absent_classes(eligible, Manifest.from_bytes(self._blobs.read(record.manifest)).classes)
        except (Corrupt, NotFound):
            return ()

    def incompatibility(self, info: DeviceInfo) -> VersionMismatch | None:
        """Return why a device can participate in none of the running runs, naming both sides' interfaces."""
        running = [served for served in self._served.values() if served.state.status == "running"]
        return incompatibility(info, {interface for served in running for interface in plan_files(served.manifest)})

    # Operators' requests

    async def start(self, new: NewRun) -> Run:
        """Start a run: see `moonfed.coordinator.runs.create`."""
        async with self._changing:
            record = await asyncio.to_thread(add_run, self._storage, new)
            _log.info("run %r starts: %s, rounds: %d", record.run, record.method, record.settings.rounds,
                      extra={"run": record.run})  # fmt: skip
            driver = await self._drive(record, await asyncio.to_thread(new_run_context, self._storage, record))
        self._close_incompatible()
        return await driver.view()

    async def stop(self, run: str) -> None:
        """End a run for good; one that has ended stays as it is."""
        if run in self.suspended:
            await asyncio.to_thread(self.suspended.stop, run)
            await notify_participants(await self.view(run), self._store, self._sessions)
        elif served := await self.find(run):
            await served.stop()

    async def set_paused(self, run: str, *, paused: bool) -> None:
        """Pause or resume a run; raises WrongState if it has ended."""
        if served := await self.find(run):
            await served.set_paused(paused=paused)
            return
        record = await asyncio.to_thread(self._store.run, run)
        raise WrongState(
            f"run {run!r} has {HAS_ENDED[record.status]}; it cannot be paused or resumed", field="run", value=run
        )

    async def delete(self, run: str) -> int:
        """Delete a run that has ended, with its models and every blob that nothing else needs; returns bytes freed."""
        released = await asyncio.to_thread(self._store.delete_run, run)
        self._served.pop(run, None)
        await asyncio.to_thread(self._storage.spool.delete_run, run)
        return await asyncio.to_thread(self._storage.garbage_collector.collect, released)

    # Who serves a run; with replicas, moonfed.coordinator.replicas.monitor decides

    async def drive(self, run: str) -> None:
        """Drive a run, whose lease is ours, unless it is driven already or has ended."""
        async with self._changing:
            record = await self._still_running(run)
            if record is None or run in self.driven:
                return
            _log.warning("run %r is now driven by this coordinator", run, extra={"run": run})
            self._release(run)
            await self._resume(record, await asyncio.to_thread(recovered_state, self._store, run))

    async def follow(self, run: str) -> None:
        """Follow a run whose lease is another coordinator's, so that this coordinator's devices participate in it."""
        async with self._changing:
            record = await self._still_running(run)
            if record is None or (run in self._served and run not in self.driven):
                return
            _log.info("run %r is driven by another coordinator and followed by this one", run, extra={"run": run})
            self._release(run)
            follower = RunFollower(
                record=record,
                manifest=Manifest.from_bytes(await in_thread(self._blobs.read, record.manifest)),
                storage=self._storage,
                sessions=self._sessions,
                liveness=self._liveness,
                background=self._background,
            )
            self._served[run] = follower
            await follower.start()
        self._close_incompatible()

    async def _still_running(self, run: str) -> RunRecord | None:
        try:
            record = await asyncio.to_thread(self._store.run, run)
        except NotFound:
            return None
        return record if record.active and not self.dismissed else None

    def _release(self, run: str) -> None:
        """Stop serving a run, which changes hands."""
        self.suspended.discard(run)
        if served := self._served.pop(run, None):
            served.close(Unavailable(f"run {run!r} is changing hands between coordinators", field="run", value=run))

    async def restart(self, run: str) -> None:
        """Retry, without limit, to resume a run whose files were damaged or unavailable."""
        async with self._changing:
            self._release(run)
            done = await self._try_restart(run)
        while not done:
            await asyncio.sleep(RETRY_SECONDS)
            async with self._changing:
                done = await self._try_restart(run)

    async def _try_restart(self, run: str) -> bool:
        """Try to drive a run; return False if it must be retried."""
        try:
            record = await self._still_running(run)
            if record and run not in self._served:
                await self._resume(record, await asyncio.to_thread(recovered_state, self._store, run))
        except Exception as error:
            if not as_transient(error):
                raise
            _log.error("run %r cannot resume; retrying in %g s: %s", run, RETRY_SECONDS, error, extra={"run": run})
            return False
        return True

    async def _resume_or_wait(self, record: RunRecord, state: State) -> None:
        """Resume a run, in the background while its files are unavailable."""
        try:
            await self._resume(record, state)
        except Exception as error:
            if not as_transient(error):
                raise
            self._background.spawn(self.restart(record.run))

    async def _resume(self, record: RunRecord, state: State) -> None:
        try:
            context = await in_thread(resumed_run_context, self._storage, record, state)
        except (MoonfedError, OSError) as error:  # one run's damaged file must not prevent the others from resuming
            if as_transient(error):
                raise
            self.suspended.add(record, error)
        else:
            await self._drive(record, context)

    async def _drive(self, record: RunRecord, context: RunContext) -> RunDriver:
        driver = RunDriver(
            record=record,
            context=context,
            storage=self._storage,
            sessions=self._sessions,
            liveness=self._liveness,
            background=self._background,
            restart=self.restart,
            observers=self.round_observers,
            observer=self._observer,
        )
        self._served[record.run] = driver
        await driver.start()
        return driver

    def _close_incompatible(self) -> None:
        """End the sessions of devices that can no longer participate in any run."""
        for session in self._sessions.all():
            if problem := self.incompatibility(session.info):
                session.close(problem)
