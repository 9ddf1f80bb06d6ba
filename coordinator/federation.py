"""The coordinator's domain: all runs, all devices, all blobs. The services call this, and nothing below it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from coordinator.attendance import Attendance, Ended, Introduction, Session, require_contract
from coordinator.background import Background, in_thread
from coordinator.endings import announce, ending
from coordinator.liveness import Liveness
from coordinator.new_runs import add_run
from coordinator.records import MAX_REASON, Answer, AttemptId, DeviceRecord, RoundRecord, RunEvent, RunRecord, RunView
from coordinator.replicas.follower import Follower
from coordinator.replicas.presence import Presence
from coordinator.replicas.replica import Replica
from coordinator.rounds.kinds import kind_of
from coordinator.rounds.retention import Retention
from coordinator.rounds.settings import Settings
from coordinator.rounds.state import State
from coordinator.run_driver import RunDriver
from coordinator.served_run import ServedRun
from coordinator.standings import Standings, load_standings
from coordinator.storage.housekeeping import discard, sweep
from coordinator.storage.state_directory import StateDirectory
from coordinator.storage.views import recovered_state, run_view
from coordinator.submissions import Submission, SubmissionDesk
from coordinator.suspended import SuspendedRuns
from coordinator.updates import UpdateHeader, check_metrics
from coordinator.uploads import Upload, Uploads
from moonfed.blobs import BlobRef
from moonfed.errors import InvalidInput, MoonfedError, NotFound, Unavailable, VersionMismatch, WrongState
from moonfed.manifest import Manifest

_log = logging.getLogger(__name__)
ROUNDS_AT_ONCE = 50  # read from the database while they are listed


class Federation:
    """Runs and devices over an opened state directory. Lives on one event loop."""

    def __init__(self, directory: StateDirectory) -> None:
        self.directory = directory
        self._store, self._blobs = directory.store, directory.blobs
        self._attendance, self._background, self._uploads = Attendance(), Background(), Uploads()
        self._liveness = Liveness()
        self._desk = SubmissionDesk(directory, self._uploads, self._background)
        self._drivers: dict[str, ServedRun] = {}
        self._suspended = SuspendedRuns(directory)
        self._starting = asyncio.Lock()
        self._stopping = False

    async def open(self) -> None:
        """Goes on with the runs that were running when the coordinator ended."""
        running = [record for record in await asyncio.to_thread(self._store.runs) if record.status == "running"]
        states = {record.run: await asyncio.to_thread(recovered_state, self._store, record.run) for record in running}
        attempts = [attempt for record in running for attempt in _needed_attempts(record, states[record.run])]
        await asyncio.to_thread(self.directory.forget_all_but, attempts)
        if self._store.leases.shared:
            await self._join_replicas()
        else:
            for record in running:
                await self._resume(record, states[record.run])
        self._background.spawn(in_thread(sweep, self.directory))

    def dismiss(self) -> None:
        """The coordinator is about to stop: ends attendances and watches; nobody counts as lost for that."""
        self._stopping = True
        reason = Unavailable("the coordinator is stopping")
        self._attendance.close(reason)
        for driver in self._drivers.values():
            driver.close(reason)

    async def close(self) -> None:
        """Stops driving; what matters is durable already."""
        await self._background.close()
        try:
            if self._store.leases.shared:
                await asyncio.to_thread(self._store.leases.release)
                await asyncio.to_thread(self._store.attendances.leave)
        except Exception:  # the database is away: our leases end by themselves
            _log.exception("the leases of runs cannot be given back")

    # Devices

    @asynccontextmanager
    async def attend(self, introduction: Introduction) -> AsyncIterator[Session]:
        """A device is here for as long as the context lasts."""
        require_contract(introduction.contract_version, f"device {introduction.device!r}")
        if problem := self._misfit(introduction):
            raise problem
        session = self._attendance.join(introduction)
        self._liveness.sign(introduction.device)
        self._background.spawn(self._noticed(introduction.device, introduction.platform))
        self._background.spawn(self._tell_ended(session))
        try:
            yield session
        finally:
            self._attendance.leave(session)
            self._background.spawn(self._noticed(introduction.device, None))

    async def submit(self, header: UpdateHeader) -> Submission:
        """Starts, or goes on with, handing in an update."""
        return await self._desk.begin(await self._find_driver(header.id.run, header.id), header)

    async def take_update(self, header: UpdateHeader, files: Mapping[str, Path]) -> None:
        """Hands in an update whose files, by role, lie on this machine; nothing is sent, the checks are the same.

        Returns when the update is durable and counts; taking the same one again changes nothing. The files stay the
        caller's, who may delete them afterwards. Raises what `submit` and its commit raise.
        """
        await self._desk.take(await self._find_driver(header.id.run, header.id), header, files)

    def moved_bytes(self, device: str) -> None:
        """A device has fetched or sent a part of something, which is a sign of progress."""
        self._liveness.sign(device)

    async def report(self, attempt: AttemptId, device: str, fraction: float) -> WrongState | None:
        """Takes notice of progress; the reason if the device may stop."""
        if not 0 <= fraction <= 1:
            raise InvalidInput(f"fraction is {fraction}; it must be from 0 to 1")
        driver = await self._find_driver(attempt.run, attempt)
        return driver.report(attempt, device, fraction) if driver else WrongState(f"run {attempt.run!r} has ended")

    async def decline(self, attempt: AttemptId, device: str, reason: str) -> None:
        """A device will deliver no update for an assignment."""
        driver = await self._find_driver(attempt.run, attempt)
        if driver is None:
            raise WrongState(f"run {attempt.run!r} has ended")
        answer = Answer(id=attempt, device=device, outcome="declined", reason=printable(reason[:MAX_REASON]))
        await self._background.finish(driver.decline(answer))

    # Blobs

    async def upload(self, refs: Sequence[BlobRef]) -> tuple[Upload, dict[str, int]]:
        """Starts, or goes on with, storing blobs; bytes already held of each."""
        absent = {ref: self._blobs.incoming(ref) for ref in await in_thread(self._lacking, refs)}
        await in_thread(self.directory.budget.require, sum(ref.size for ref in absent))
        upload, offsets = await self._uploads.begin(absent)
        return upload, {ref.sha256: ref.size for ref in refs} | offsets

    def _lacking(self, refs: Sequence[BlobRef]) -> list[BlobRef]:
        return [ref for ref in refs if not self._blobs.has(ref)]

    async def store(self, upload: Upload, refs: Sequence[BlobRef]) -> None:
        """Ends an upload: the blobs are checked, durable and can be fetched."""
        by_digest = {ref.sha256: ref for ref in refs}
        async with upload.held():
            for sha256, path in (await upload.finish()).items():
                await in_thread(self._blobs.put_file, path, by_digest[sha256])

    # Runs

    async def start_run(self, name: str, manifest: str, model: str, settings: Settings) -> RunView:
        """Starts a run from a stored bundle, from its initial weights or from a stored model."""
        return await self._background.finish(self._start_run(name, manifest, model, settings))

    async def runs(self) -> list[RunView]:
        """All runs, oldest first."""
        return [await self.run(record.run) for record in await asyncio.to_thread(self._store.runs)]

    async def run(self, run: str) -> RunView:
        """One run."""
        if run in self._suspended:
            return await asyncio.to_thread(self._suspended.view, run)
        driver = await self._find_driver(run)
        return await (driver.view() if driver else asyncio.to_thread(self._past_view, run))

    async def rounds(self, run: str) -> AsyncGenerator[RoundRecord, None]:
        """A run's committed and abandoned rounds, oldest first, a few at a time."""
        await asyncio.to_thread(self._store.run, run)
        last: AttemptId | None = None
        while page := await asyncio.to_thread(self._store.past_rounds, run, last, ROUNDS_AT_ONCE):
            for found in page:
                yield found
            last = page[-1].id

    async def stop_run(self, run: str) -> RunView:
        """Ends a run for good; its global models stay. A run that has ended stays as it is."""
        if run in self._suspended:
            await self._background.finish(self._stop_suspended(run))
        elif driver := await self._find_driver(run):
            await self._background.finish(driver.stop())
        return await self.run(run)

    async def delete_run(self, run: str) -> int:
        """Forgets a run that has ended, with its models and all that nothing else refers to; bytes freed."""
        return await self._background.finish(self._delete_run(run))

    async def prune_run(self, run: str, retention: Retention) -> tuple[int, int]:
        """Deletes old global models of a run: how many, and bytes freed. What a running run needs stays."""
        record = await asyncio.to_thread(self._store.run, run)
        needed = record.settings.models_needed if record.status == "running" else 1
        models, released = await in_thread(self._store.prune_run, run, retention, needed)
        return models, await in_thread(discard, self.directory, released)

    async def watch(self, run: str) -> AsyncGenerator[RunEvent | RunView, None]:
        """A snapshot of the run, then what happens to it until it has ended; WrongState if it is suspended."""
        if run in self._suspended:
            yield await self.run(run)  # and then why there is no more to be seen
        driver = await self._find_driver(run)
        if driver is None:
            view = await self.run(run)
            yield view
            yield RunEvent(kind="ended", run=view)
            return
        view, watcher = await driver.watch()
        try:
            yield view
            async for event in watcher.events():
                yield event
        finally:
            driver.unwatch(watcher)

    async def record_metrics(self, run: str, round_: int, metrics: Mapping[str, float]) -> None:
        """Keeps metrics of one global model; 0 stands for the weights that the run started from."""
        check_metrics(metrics)
        view = await self.run(run)
        if not 0 <= round_ <= view.committed:
            raise NotFound(f"run {run!r} has no global model {round_}; there are 0 to {view.committed}")
        await asyncio.to_thread(self._store.put_metrics, run, round_, metrics)
        if driver := self._drivers.get(run):
            driver.measured(round_, metrics)

    async def devices(self) -> list[DeviceRecord]:
        """All known devices, in order of their names."""
        return [self._seen(device) for device in await asyncio.to_thread(self._store.registry.devices)]

    def _seen(self, device: DeviceRecord) -> DeviceRecord:
        session = self._attendance.find(device.device)
        return replace(device, attending=True, labels=session.introduction.labels) if session else device

    # Below

    async def _start_run(self, name: str, manifest: str, model: str, settings: Settings) -> RunView:
        async with self._starting:
            record = await asyncio.to_thread(add_run, self.directory, name, manifest, model, settings)
            _log.info("run %r starts: %s, rounds: %d", record.run, record.method, settings.rounds)
            loaded = await asyncio.to_thread(self._load, record)
            driver = await self._drive(record, kind_of(record.settings).first, *loaded)
        self._close_misfits()
        return await driver.view()

    def _close_misfits(self) -> None:
        """Ends the attendances of devices that can take part in no run any more."""
        for session in self._attendance.sessions():
            if problem := self._misfit(session.introduction):
                session.close(problem)

    async def _delete_run(self, run: str) -> int:
        released = await asyncio.to_thread(self._store.delete_run, run)
        self._drivers.pop(run, None)
        await asyncio.to_thread(self.directory.forget_run, run)
        return await asyncio.to_thread(discard, self.directory, released)

    async def _drive(self, record: RunRecord, state: State, manifest: Manifest, standings: Standings) -> RunDriver:
        driver = RunDriver(
            record=record,
            manifest=manifest,
            standings=standings,
            state=state,
            directory=self.directory,
            attendance=self._attendance,
            liveness=self._liveness,
            background=self._background,
        )
        self._drivers[record.run] = driver
        await driver.start()
        return driver

    def _load(self, record: RunRecord) -> tuple[Manifest, Standings]:
        """The run's manifest and where its training stands, both checked."""
        manifest = Manifest.from_bytes(self._blobs.read(record.manifest))
        return manifest, load_standings(self.directory, record, manifest)

    async def _find_driver(self, run: str, attempt: AttemptId | None = None) -> ServedRun | None:
        """The running run, None for one that has ended; NotFound, or WrongState if it is suspended.

        `attempt`: what the caller is about to ask of it, which must not be judged by what is known no more.
        """
        if run in self._suspended:
            raise self._suspended.problem(run)
        driver = self._drivers.get(run)
        if driver is None:
            record = await asyncio.to_thread(self._store.run, run)
            if record.status == "running" and self._store.leases.shared:  # another replica has just started it
                await self.follow(run)
                driver = self._drivers.get(run)
        elif attempt and driver.is_over(attempt):
            await driver.catch_up()
        if driver and driver.state.status != "running":
            self._drivers.pop(run, None)
            return None
        return driver

    async def _resume(self, record: RunRecord, state: State) -> None:
        try:
            await in_thread(self.directory.forget_shared, record.run, _needed_attempts(record, state))
            loaded = await asyncio.to_thread(self._load, record)
        except (MoonfedError, OSError) as error:  # one run's damaged file must not keep the others from going on
            self._suspended.add(record, error)
        else:
            await self._drive(record, state, *loaded)

    # Several coordinators on one database: coordinator.replicas.replica

    async def _join_replicas(self) -> None:
        presence = Presence(self._store.attendances, self._store.leases.holder or "", self._attendance, self._liveness)
        replica = Replica(self._store, self, presence)
        await replica.beat()
        await replica.look()
        self._background.spawn(replica.keep_beating())
        self._background.spawn(replica.keep_looking())

    @property
    def served(self) -> Mapping[str, ServedRun]:
        """The running runs, driven or followed."""
        return self._drivers

    @property
    def driven(self) -> set[str]:
        """Those that are driven here, the suspended among them."""
        return {run for run, served in self._drivers.items() if isinstance(served, RunDriver)} | self._suspended.names

    async def drive(self, run: str) -> None:
        """The run's lease is ours: goes on with it, unless it is driven already or has ended."""
        async with self._starting:
            record = await self._still_running(run)
            if record is None or run in self.driven:
                return
            _log.warning("run %r is driven here from now on", run)
            self._let_go(run)
            await self._resume(record, await asyncio.to_thread(recovered_state, self._store, run))

    async def follow(self, run: str) -> None:
        """The run's lease is another's: offers its work here all the same."""
        async with self._starting:
            record = await self._still_running(run)
            if record is None or (run in self._drivers and run not in self.driven):
                return
            _log.info("run %r is driven by another coordinator, and followed here", run)
            self._let_go(run)
            manifest = Manifest.from_bytes(await in_thread(self._blobs.read, record.manifest))
            self._drivers[run] = Follower(
                record=record,
                manifest=manifest,
                directory=self.directory,
                attendance=self._attendance,
                liveness=self._liveness,
                background=self._background,
            )
            await self._drivers[run].start()
        self._close_misfits()

    async def _still_running(self, run: str) -> RunRecord | None:
        try:
            record = await asyncio.to_thread(self._store.run, run)
        except NotFound:
            return None
        return record if record.status == "running" and not self._stopping else None

    def _let_go(self, run: str) -> None:
        """The run changes hands."""
        self._suspended.forget(run)
        if served := self._drivers.pop(run, None):
            served.close(Unavailable(f"run {run!r} is changing hands between coordinators; watch again"))

    async def _stop_suspended(self, run: str) -> None:
        await asyncio.to_thread(self._suspended.stop, run)
        await announce(await self.run(run), self._store, self._attendance)

    def _past_view(self, run: str) -> RunView:
        return run_view(self._store, self._store.run(run), None)

    async def _noticed(self, device: str, platform: Mapping[str, str] | None) -> None:
        """Lets every run know whether the device is here now."""
        if self._stopping:
            return
        try:  # known first, since a round may begin with it: SCAFFOLD counts the devices that there are
            await asyncio.to_thread(self._store.registry.seen, device, platform)
        finally:
            for driver in list(self._drivers.values()):
                await driver.refresh(device)

    async def _tell_ended(self, session: Session) -> None:
        """Lets a device know which of the runs that it keeps state of are over."""
        for run in session.introduction.runs:
            if ended := await self._ending(run):
                session.tell_ended(ended)

    async def _ending(self, run: str) -> Ended | None:
        """None while the run goes on, or is suspended and may go on after a restart."""
        try:
            view = await self.run(run)
            return None if view.record.status == "running" else ending(view)
        except NotFound:  # of a coordinator that was here before; unless one of that name has just started
            return None if run in self._drivers else Ended(run=run)

    def _misfit(self, introduction: Introduction) -> VersionMismatch | None:
        """Why a device could take part in none of the running runs, naming both sides' interfaces."""
        running = [driver for driver in self._drivers.values() if driver.state.status == "running"]
        wanted = sorted({driver.manifest.plan.interface for driver in running})
        if not wanted or set(wanted) & set(introduction.plan_interfaces):
            return None
        understood = ", ".join(introduction.plan_interfaces) or "none"
        return VersionMismatch(
            f"device {introduction.device!r} understands these plan interfaces: {understood}; "
            f"the running runs need {', '.join(wanted)}"
        )


def printable(text: str) -> str:
    """A device's own words without line breaks and the like, which could forge lines of the log."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def _needed_attempts(record: RunRecord, state: State) -> list[AttemptId]:
    """The attempts whose updates lie in the spool, or may come."""
    needed = kind_of(record.settings).needed_attempts(record.settings, state)
    return [AttemptId(run=record.run, round=round_, attempt=attempt) for round_, attempt in needed]
