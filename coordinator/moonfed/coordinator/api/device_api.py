"""The calls of devices, over all runs and independent of the transport. The Fleet service calls this."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import replace

from moonfed.coordinator.devices.blob_access import BlobAccess
from moonfed.coordinator.devices.liveness import Liveness
from moonfed.coordinator.devices.release_targets import ReleaseTargets
from moonfed.coordinator.devices.sessions import DeviceInfo, DeviceSession, Sessions, require_contract
from moonfed.coordinator.observer import SILENT, Observer
from moonfed.coordinator.records import MAX_REASON, AttemptId, DeviceReport, EligibilityReport, EvaluationReport
from moonfed.coordinator.runs.evaluations import Evaluations
from moonfed.coordinator.runs.handle import RunHandle
from moonfed.coordinator.runs.manager import RunManager
from moonfed.coordinator.storage.blobs.blob_store import BlobStore
from moonfed.coordinator.storage.device_registry import DeviceRegistry
from moonfed.coordinator.storage.registry_view import RegistryView
from moonfed.coordinator.support.tasks import BackgroundTasks
from moonfed.errors import InvalidInput, NotFound, WrongState
from moonfed.fleet.assignment import RunEnded
from moonfed.fleet.target_release import MAX_INSTALLED, InstalledRelease, ReleaseReport
from moonfed.observability.flood_log import FloodLog
from moonfed.printable import printable
from moonfed.transport.identity import Certificate

_log = logging.getLogger(__name__)


class DeviceApi:
    """Sessions of devices, and their reports. Lives on one event loop."""

    def __init__(
        self,
        *,
        blobs: BlobStore,
        access: BlobAccess,
        registry: DeviceRegistry,
        runs: RunManager,
        evaluations: Evaluations,
        sessions: Sessions,
        liveness: Liveness,
        background: BackgroundTasks,
        releases: ReleaseTargets,
        observer: Observer = SILENT,
    ) -> None:
        self._observer = observer
        self.blobs = blobs
        self.access = access
        self._releases = releases
        self._registry = registry
        self._runs = runs
        self._evaluations = evaluations
        self._sessions = sessions
        self._liveness = liveness
        self._background = background
        self._answers = FloodLog(_log)

    @asynccontextmanager
    async def connect(
        self,
        info: DeviceInfo,
        certificate: Certificate | None = None,
        installed: Sequence[InstalledRelease] = (),
    ) -> AsyncIterator[DeviceSession]:
        """Keep a device online for as long as the context lasts.

        `certificate`: its own, if it has one. `installed`: the releases that it predicts with.
        """
        require_contract(info.contract_version, f"device {info.device!r}")
        if len(installed) > MAX_INSTALLED:
            raise InvalidInput(f"installed has {len(installed)} releases; it must be at most {MAX_INSTALLED}")
        if problem := self._runs.incompatibility(info):
            raise problem
        session = self._sessions.open(info, certificate.serial if certificate else "")
        self._liveness.heartbeat(info.device)
        self._background.spawn(self._introduce(session, certificate, installed))
        self._background.spawn(self._notify_ended(session))
        self._evaluations.wake()
        try:
            yield session
        finally:
            self._sessions.discard(session)
            self._background.spawn(self._refresh(info.device))

    async def leave(self, device: str) -> None:
        """End the session of a device that stops; runs that have an idle device replace it at once."""
        self._sessions.leave(device)
        await self._background.finish(self._refresh(device, None))

    def suspended(self, device: str) -> AbstractContextManager[None]:
        """Exempt a device from stall detection while it waits for the coordinator."""
        return self._liveness.suspended(device)

    def heartbeat(self, device: str) -> None:
        """Note that a device has fetched or sent a part, which is progress."""
        self._liveness.heartbeat(device)

    async def report(self, attempt: AttemptId, device: str, fraction: float) -> WrongState | None:
        """Publish a device's progress; return the reason if its update is no longer needed."""
        if not 0 <= fraction <= 1:
            raise InvalidInput(field="fraction", value=fraction, allowed="from 0 to 1")
        run = await self._runs.find(attempt.run, attempt)
        return (
            run.report(attempt, device, fraction)
            if run
            else WrongState(f"run {attempt.run!r} has ended", field="run", value=attempt.run)
        )

    async def decline(self, attempt: AttemptId, device: str, reason: str, *, permanent: bool = False) -> None:
        """Record that a device declines an assignment; if `permanent`, it is ineligible for the run from then on."""
        run = await self._runs.find(attempt.run, attempt)
        if run is None:
            raise WrongState(f"run {attempt.run!r} has ended", field="run", value=attempt.run)
        report = DeviceReport(id=attempt, device=device, outcome="declined", reason=printable(reason[:MAX_REASON]))
        if permanent:
            session = self._sessions.find(device)
            fingerprint = session.info.fingerprint if session else ""
            why = report.reason or "the device declines the run"
            await self._record(run, EligibilityReport(device=device, fingerprint=fingerprint, reason=why))
        await self._background.finish(run.decline(report))
        self._observer.update_ended("declined", "ineligible" if permanent else "device")

    async def report_eligibility(self, run: str, manifest: str, report: EligibilityReport) -> None:
        """Record whether a device is eligible for a run; `manifest`: the sha256 of the one that it checked."""
        session, served = self._sessions.find(report.device), await self._runs.find(run)
        if served and served.record.manifest.sha256 == manifest:
            await self._record(served, report)
            return
        if session:
            session.answered(run)
        if served is None:
            raise WrongState(f"run {run!r} has ended", field="run", value=run)
        await served.refresh(report.device)  # asked about an earlier run of that name, it is now asked about this one
        raise WrongState(f"run {run!r} has another bundle", field="run", value=run)

    async def report_evaluation(self, report: EvaluationReport) -> None:
        """Record a device's answer to an evaluation; only its first answer is kept."""
        if not await self._background.finish(self._evaluations.answer(report)):
            return
        line = "run %r: %s does not evaluate global model %d: %s"
        if report.scores is None:
            where = (report.run, report.device, report.round)
            fields = {"run": report.run, "round": report.round, "device": report.device}
            self._answers.write(logging.INFO, report.device, line, *where, report.reason, fields=fields)

    async def _record(self, run: RunHandle, report: EligibilityReport) -> None:
        if not await self._background.finish(run.report_eligibility(report)):
            return
        name, device = run.record.run, report.device
        fields = {"run": name, "device": device}
        session = self._sessions.find(device)
        if session and session.info.fingerprint != report.fingerprint:
            line = "run %r: %s has answered for data or limits that have changed since; it is asked again"
            self._answers.write(logging.INFO, device, line, name, device, fields=fields)
        elif report.reason:
            line = "run %r: %s is not eligible: %s"
            self._answers.write(logging.WARNING, device, line, name, device, report.reason, fields=fields)
        else:
            self._answers.write(logging.INFO, device, "run %r: %s is eligible", name, device, fields=fields)

    async def apply_registry(self, view: RegistryView) -> None:
        """Apply operators' revocations, removals and labels; a run may have waited for a device with a label."""
        self._liveness.set_revoked(view.revoked)
        self._sessions.end_rejected(view.devices)
        self._sessions.identities.forget(devices=view.revoked, serials=view.devices)
        self._releases.choose_again()
        changed = self._sessions.set_operator_labels(view.labels)
        for run in list(self._runs.served.values()):
            await run.forget_removed(view.known - view.revoked)
            for device in changed:
                await run.refresh(device)

    async def report_release(self, report: ReleaseReport) -> None:
        """Record what became of a target release on a device."""
        report = replace(report, reason=printable(report.reason[:MAX_REASON]))
        await self._background.finish(self._releases.report(report))
        what = f"version {report.version}" if report.version else "removal"
        done = "done" if report.outcome == "installed" and not report.version else report.outcome
        level = logging.INFO if report.outcome in ("accepted", "installed") else logging.WARNING
        reason = f": {report.reason}" if report.reason else ""
        line = "release %r: %s on %s: %s%s"
        self._answers.write(level, report.device, line, report.name, what, report.device, done, reason,
                            fields={"device": report.device})  # fmt: skip

    async def _introduce(
        self, session: DeviceSession, certificate: Certificate | None, installed: Sequence[InstalledRelease]
    ) -> None:
        """Let runs and deployments know a device that has just connected."""
        try:
            await self._refresh(session.device, session.info, certificate)
        finally:
            if self._sessions.find(session.device) is session:
                self._releases.connect(session, installed)

    async def _refresh(
        self, device: str, info: DeviceInfo | None = None, certificate: Certificate | None = None
    ) -> None:
        """Tell every run whether a device is online now; `info` and `certificate`: of one that has just connected."""
        if self._runs.dismissed:
            return
        try:  # registered first: connecting may open a round, and SCAFFOLD counts the known devices
            await asyncio.to_thread(
                self._registry.seen,
                device,
                info.platform if info else None,
                certificate,
                release=info.release if info else "",
                labels=info.labels if info else None,
            )
        finally:
            for run in list(self._runs.served.values()):
                await run.refresh(device)

    async def _notify_ended(self, session: DeviceSession) -> None:
        """Notify a device of the end of runs whose state it keeps."""
        for run in session.info.runs:
            if self._sessions.find(session.device) is not session:  # a device that reconnects would pile these up
                return
            if await self._has_ended(run):
                session.notify_ended(RunEnded(run=run))

    async def _has_ended(self, run: str) -> bool:
        """Return whether a run has ended; one that is suspended has not, since it may resume after a restart."""
        try:
            return not (await self._runs.view(run)).active
        except NotFound:  # a run of an earlier coordinator, unless one of that name has just started
            return run not in self._runs.served
