"""Evaluations of global models on devices: which devices are asked, what they answer, and when an evaluation ends.

The state is in the database. Every replica asks the devices that are connected to it, and each may end an evaluation,
whether or not the run is still running; so a restart or the end of a replica needs no takeover.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass

from moonfed.blobs.store import BlobRef
from moonfed.bundle.manifest import Manifest, plan_files
from moonfed.control.evaluations import DeviceEvaluation, Evaluation
from moonfed.coordinator.devices.eligibility import groups, ineligibility
from moonfed.coordinator.devices.sessions import DeviceSession, Sessions
from moonfed.coordinator.records import EligibilityReport, EvaluationRecord, EvaluationReport, RunRecord
from moonfed.coordinator.rounds.evaluation import EvaluationState, next_steps, summarise
from moonfed.coordinator.storage.opening import Storage
from moonfed.coordinator.support.error_log import log_error
from moonfed.coordinator.support.tasks import BackgroundTasks, in_thread
from moonfed.errors import InvalidInput, NotFound
from moonfed.fleet.evaluation import EvaluationTask
from moonfed.formatting import moment, moment_or_none
from moonfed.validate import require

POLL_SECONDS = 1.0  # between two looks at the open evaluations
MAX_DEADLINE = 30 * 86400.0
Key = tuple[str, int, int]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Task:
    """An evaluation as this coordinator's devices are asked for it."""

    record: RunRecord
    manifest: Manifest
    task: EvaluationTask
    deadline: float  # by the event loop's clock, which does not jump

    @property
    def plans(self) -> list[BlobRef]:
        """The files that hold the bundle's plan, of which a device fetches one."""
        return [self.manifest.files[name] for name in plan_files(self.manifest).values()]


class Evaluations:
    """The open evaluations of all runs. Lives on one event loop."""

    def __init__(self, storage: Storage, sessions: Sessions, background: BackgroundTasks) -> None:
        self._storage = storage
        self._records = storage.store.evaluations
        self._sessions = sessions
        self._background = background
        self._tasks: dict[Key, _Task] = {}
        self._problems: dict[Key, str] = {}  # logged already
        self._wake, self._advancing = asyncio.Event(), asyncio.Lock()

    def open(self) -> None:
        """Continue the evaluations that were open when the coordinator ended, and those of other replicas."""
        self._background.spawn(self._run())

    async def begin(
        self, run: str, round_: int, seconds: float, *, again: bool, without_privacy: bool = False
    ) -> EvaluationRecord:
        """Begin a global model's evaluation, unless there is one; see `EvaluationRecords.begin`.

        `without_privacy`: also in a run with differential privacy, whose ledger names the evaluation from then on.
        """
        allowed = f"a number above 0, at most {MAX_DEADLINE:.0f}"
        require(0 < seconds <= MAX_DEADLINE, "deadline_seconds", seconds, allowed)
        await in_thread(self._require_protection, run, round_, without_privacy)
        record = await in_thread(self._records.begin, run, round_, seconds, again=again)
        self._wake.set()
        return record

    def _require_protection(self, run: str, round_: int, without_privacy: bool) -> None:
        """Refuse scores that no noise covers, or record them before any device is asked."""
        store = self._storage.store
        if without_privacy:
            store.privacy.record_unprotected(run, f"evaluation of round {round_}")
        elif store.run(run).settings.private:
            rest = (
                f"; run {run!r} has differential privacy, and scores of devices have no noise, so that only "
                "--without-privacy releases them"
            )
            raise InvalidInput(field="without_privacy", value=False, rest=rest)

    async def answer(self, report: EvaluationReport) -> bool:
        """Record a device's answer durably; return False for a repetition. See `EvaluationRecords.answer`."""
        try:
            return await in_thread(self._records.answer, report)
        finally:
            if session := self._sessions.find(report.device):
                session.evaluated(report.key)
            self._wake.set()

    def wake(self) -> None:
        """Look at the open evaluations soon: a device has come online."""
        if self._tasks:
            self._wake.set()

    async def _run(self) -> None:
        """Advance the open evaluations forever."""
        known = True  # whether there are any, as far as this coordinator knows
        while True:
            self._wake.clear()
            try:
                known = await self.advance()
            except Exception as error:
                log_error(_log, "cannot read the open evaluations; retrying", error)
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._wake.wait(), POLL_SECONDS if known or self._records.shared else None)

    async def advance(self) -> bool:
        """Ask devices and end evaluations as they are due; return whether any is open."""
        async with self._advancing:
            found = await in_thread(self._records.open_ones)
            self._forget({record.key for record in found})
            for record in found:
                await self._try_to_advance(record)
            return bool(found)

    async def _try_to_advance(self, record: EvaluationRecord) -> None:
        """Advance one evaluation; its problem, such as a damaged file, is logged once and delays no other."""
        try:
            await self._advance(record)
        except NotFound:  # the run was deleted
            return
        except Exception as error:
            if self._problems.get(record.key) != str(error):
                self._problems[record.key] = str(error)
                log_error(_log, f"run {record.run!r}: cannot continue an evaluation; retrying", error, run=record.run)
        else:
            self._problems.pop(record.key, None)

    async def _advance(self, record: EvaluationRecord) -> None:
        task = self._tasks.get(record.key) or await self._load(record)
        overdue = asyncio.get_running_loop().time() >= task.deadline
        candidates = await self._eligible(record, task)
        state = EvaluationState(
            pending=record.pending,
            answered=frozenset(score.device for score in record.scores) | record.declined.keys(),
            gone=record.gone - candidates.keys(),
        )
        steps = next_steps(state, candidates, overdue=overdue)
        if steps.expect:
            await in_thread(self._records.expect, record, steps.expect)
        for device in steps.ask:
            candidates[device].evaluate(task.task, task.plans)
        if steps.close:
            await self._close(record)

    async def _load(self, record: EvaluationRecord) -> _Task:
        run = await in_thread(self._storage.store.run, record.run)
        manifest = Manifest.from_bytes(await in_thread(self._storage.blobs.read, run.manifest))
        task = EvaluationTask(
            run=run.run,
            round=record.round,
            number=record.number,
            manifest=run.manifest,
            signature=run.signature,
            model=record.model,
            seed=run.settings.seed,
            required_plan=run.settings.required_plan,
        )
        deadline = asyncio.get_running_loop().time() + record.seconds_left
        self._tasks[record.key] = loaded = _Task(run, manifest, task, deadline)
        _log.info("run %r: devices evaluate global model %d", run.run, record.round,
                  extra={"run": run.run, "round": record.round})  # fmt: skip
        return loaded

    async def _eligible(self, record: EvaluationRecord, task: _Task) -> Mapping[str, DeviceSession]:
        """Return the devices that are online and may be asked, with their sessions.

        One that has yet to say whether it is eligible is asked, too: it checks the bundle before it evaluates a model.
        """
        reports: Mapping[str, EligibilityReport] | None = None
        found: dict[str, DeviceSession] = {}
        for session in self._sessions.all():
            if ineligibility(session.info, task.manifest, task.record.settings):
                continue
            if session.device not in record.pending:
                if reports is None:
                    reports = await in_thread(self._storage.store.eligibility.of_run, record.run)
                if _says_ineligible(session, reports):
                    continue
            found[session.device] = session
        return found

    async def _close(self, record: EvaluationRecord) -> None:
        released = await in_thread(self._records.close, record)
        if released is None:  # by another replica
            return
        await in_thread(self._storage.garbage_collector.collect, released)
        _log.info("run %r: the evaluation of global model %d has ended", record.run, record.round,
                  extra={"run": record.run, "round": record.round})  # fmt: skip
        self._forget(self._tasks.keys() - {record.key})

    def _forget(self, still_open: set[Key]) -> None:
        """Forget evaluations that have ended, here or at another replica."""
        self._problems = {key: problem for key, problem in self._problems.items() if key in still_open}
        for key in [key for key in self._tasks if key not in still_open]:
            del self._tasks[key]
            for session in self._sessions.local().values():
                session.evaluated(key)


def _says_ineligible(session: DeviceSession, reports: Mapping[str, EligibilityReport]) -> bool:
    report = reports.get(session.device)
    return report is not None and report.fingerprint == session.info.fingerprint and bool(report.reason)


def shown_evaluation(record: EvaluationRecord) -> Evaluation:
    """Return an evaluation on devices as operators see it."""
    found = DeviceEvaluation(
        run=record.run,
        round=record.round,
        number=record.number,
        opened=moment(record.opened),
        deadline=moment(record.deadline),
        closed=moment_or_none(record.closed),
        scores=record.scores,
        skipped=groups(record.declined),
        waiting=tuple(sorted(record.pending - record.gone)),
        metric=record.metric,
        **asdict(summarise(record.scores, record.metric)),
    )
    return Evaluation(run=record.run, round=record.round, on_devices=found)
