"""Eligibility of devices for runs: by plan interface, encodings and labels, and by what devices report themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import replace

from moonfed.bundle.manifest import Manifest, plan_files
from moonfed.control.run_settings import RunSettings
from moonfed.control.runs import Ineligible, Run
from moonfed.coordinator.devices.sessions import DeviceInfo, DeviceSession, RemoteSession, Sessions
from moonfed.coordinator.records import EligibilityReport, RunRecord
from moonfed.coordinator.rounds.protocol import round_protocol
from moonfed.coordinator.rounds.status_text import CHECKING
from moonfed.coordinator.storage.eligibility import EligibilityReports
from moonfed.coordinator.support.tasks import in_thread
from moonfed.errors import VersionMismatch
from moonfed.fleet.assignment import EligibilityCheck
from moonfed.fleet.class_bits import absent_classes, require_bits
from moonfed.formatting import count
from moonfed.labels import lacking, write_labels


def ineligibility(info: DeviceInfo, manifest: Manifest, settings: RunSettings) -> str | None:
    """Return what a device lacks for a run, such as "without the encoding int8"; None if it is eligible."""
    if info.inference_only:
        return "without data, for inference only"
    usable = [settings.required_plan] if settings.required_plan else list(plan_files(manifest))
    if not set(usable) & set(info.plan_interfaces):
        return f"without the plan interface {' or '.join(usable)}"
    if unknown := settings.encodings.needed - set(info.encodings):
        return f"without the encoding {', '.join(sorted(unknown))}"
    if missing := lacking(info.operator_labels if settings.trusted_labels else info.all_labels, settings.labels):
        return f"without the {'trusted ' if settings.trusted_labels else ''}label {write_labels(missing)}"
    return None


def incompatibility(info: DeviceInfo, interfaces: Collection[str]) -> VersionMismatch | None:
    """Return why a device supports no plan with one of these interfaces; None if it does, or if there are none."""
    if not interfaces or set(interfaces) & set(info.plan_interfaces):
        return None
    supported = ", ".join(info.plan_interfaces) or "none"
    return VersionMismatch(
        f"device {info.device!r} supports these plan interfaces: {supported}; "
        f"the running runs need {', '.join(sorted(interfaces))}",
        field="device",
        value=info.device,
    )


class EligibleDevices:
    """The online devices that are eligible for a run, by their descriptions and by their own answers.

    A device that checks runs is asked once, and is eligible once it has reported that it is. Lives on one event loop.
    """

    def __init__(
        self,
        sessions: Sessions,
        record: RunRecord,
        manifest: Manifest,
        store: EligibilityReports,
        *,
        driven: bool,
    ) -> None:
        """`driven`: whether this coordinator drives the run or follows it."""
        self._sessions = sessions
        self._record = record
        self._manifest = manifest
        self._store = store
        self._check = EligibilityCheck(
            run=record.run,
            manifest=record.manifest,
            signature=record.signature,
            report_classes=manifest.target.kind == "class" and record.settings.asks_classes,
            required_plan=record.settings.required_plan,
        )
        self._driven = driven
        self._reports: dict[str, EligibilityReport] = {}
        self._excluded: frozenset[str] = frozenset()  # devices that robust aggregation leaves out
        self._pending: dict[str, EligibilityReport] = {}  # not yet durable
        self._recording = asyncio.Lock()
        self._version = 0  # of the reports in the database
        self._ineligible: dict[str, str] = {}  # online devices, with the reason
        self._unanswered: set[str] = set()  # online devices
        self.all_answered = asyncio.Event()
        self.all_answered.set()

    def load(self, reports: Mapping[str, EligibilityReport]) -> set[str]:
        """Replace all reports by those in the database; return the devices whose report has changed."""
        before, self._reports = self._reports, dict(reports)
        return {device for device, report in reports.items() if before.get(device) != report}

    async def forget_removed(self, known: Collection[str]) -> None:
        """Forget the reports of devices that were removed or revoked; an exclusion follows a device to its new name."""
        self._reports = {device: report for device, report in self._reports.items() if device in known}
        await self.load_excluded()

    def exclude(self, devices: Collection[str]) -> None:
        """Leave out devices that were clipped too often in a row, as the database records."""
        self._excluded |= frozenset(devices)

    async def load_excluded(self) -> set[str]:
        """Load the devices that were clipped too often in a row; return those that have changed."""
        after = self._record.settings.exclude_after
        if not after:
            return set()
        before, self._excluded = self._excluded, await in_thread(self._store.clipped, self._record.run, after)
        return set(self._excluded ^ before)

    async def catch_up(self) -> set[str]:
        """Load what other coordinators have recorded; return the devices whose report or exclusion has changed."""
        if not self._store.shared:
            return set()
        changed = await self.load_excluded()
        version = await in_thread(self._store.version, self._record.run)
        if version != self._version:
            changed |= self.load(await in_thread(self._store.of_run, self._record.run))
            self._version = version
        return changed

    async def record(self, report: EligibilityReport) -> bool:
        """Record a device's report durably, together with those that arrive meanwhile; return False for a repetition.

        The caller looks the device up again. Raises InvalidInput unless its classes are those that were asked for.
        """
        if report.classes:
            require_bits(report.classes, len(self._manifest.classes) if self._check.report_classes else 0)
        is_news = self._reports.get(report.device) != report
        if is_news:
            await self._make_durable(report)
        if session := self._sessions.find(report.device):
            session.answered(self._record.run)
        return is_news

    async def _make_durable(self, report: EligibilityReport) -> None:
        self._pending[report.device] = report
        async with self._recording:
            batch, self._pending = self._pending, {}
            if not batch:  # an earlier report's batch had it
                return
            try:
                await in_thread(self._store.record, self._record.run, list(batch.values()))
            except BaseException:
                self._pending = {**batch, **self._pending}  # for the next report, or the device's next attempt
                raise
            self._reports |= batch

    def sessions(self) -> list[DeviceSession]:
        """Return the sessions of all eligible devices."""
        return [session for session in self._sessions.all() if self.find(session.device)]

    def find(self, device: str) -> DeviceSession | None:
        """Return a device's session; None if it is offline, ineligible or yet to answer, and asks the last kind."""
        session = self._sessions.find(device)
        problem = self._ineligibility(session) if session else None
        self._note(device, problem)
        if session and problem == CHECKING:
            session.ask(self._check)
        return None if problem else session

    def _note(self, device: str, problem: str | None) -> None:
        self._ineligible.pop(device, None)
        self._unanswered.discard(device)
        if problem == CHECKING:
            self._unanswered.add(device)
        elif problem:
            self._ineligible[device] = problem
        if self._unanswered:
            self.all_answered.clear()
        else:
            self.all_answered.set()

    def names(self) -> set[str]:
        """Return the online devices that are eligible, as of their last lookup."""
        online = {session.device for session in self._sessions.all()}
        return online - self._ineligible.keys() - self._unanswered

    def ineligibility(self, device: str) -> str:
        """Return why an online device is ineligible, as of its last lookup; empty if it is not."""
        return self._ineligible.get(device, "")

    def problems(self) -> dict[str, str]:
        """Return the reason for each ineligible online device, as of its last lookup."""
        return {**self._ineligible, **dict.fromkeys(self._unanswered, CHECKING)}

    def complete(self, view: Run) -> Run:
        """Add the numbers of eligible devices and of those that have not answered, the ineligible ones, and classes."""
        online = {session.device for session in self._sessions.all()}
        excluded = dict.fromkeys(self._excluded, clipped_text(self._record.settings.exclude_after))
        away = {
            device: why for device, why in {**ineligible(self._reports), **excluded}.items() if device not in online
        }
        return replace(
            view,
            eligible=len(self.names()),
            checking=len(self._unanswered),
            ineligible=groups({**away, **self._ineligible}),
            absent_classes=() if self._unanswered else self._absent_classes(),
        )

    def _absent_classes(self) -> tuple[str, ...]:
        """Return the classes that no eligible device has; one that is offline counts by its last report."""
        unfit = ineligible(self._reports).keys() | self._ineligible.keys() | self._excluded
        eligible = (self._reports.keys() | self.names()) - unfit
        reports = [self._reports.get(device) for device in eligible]
        return absent_classes((report.classes if report else b"" for report in reports), self._manifest.classes)

    def _ineligibility(self, session: DeviceSession) -> str | None:
        """Return why a device is not eligible; CHECKING if it has yet to answer."""
        settings = self._record.settings
        if round_protocol(settings).leaseholder_only and isinstance(session, RemoteSession) == self._driven:
            return (
                "not connected to the coordinator that drives this asynchronous run, the only one that accepts updates"
            )
        if session.device in self._excluded:
            return clipped_text(settings.exclude_after)
        if problem := ineligibility(session.info, self._manifest, settings):
            return problem
        report = self._reports.get(session.device)
        if report and report.fingerprint == session.info.fingerprint:
            return report.reason or None
        return CHECKING if session.info.fingerprint else None


def clipped_text(times: int) -> str:
    """Return why a device is left out after it was clipped that many times in a row."""
    return f"its update was clipped in {count(times, 'round')} in a row"


def ineligible(reports: Mapping[str, EligibilityReport]) -> dict[str, str]:
    """Return the reasons of the devices that have reported that they are ineligible."""
    return {device: report.reason for device, report in reports.items() if report.reason}


def groups(problems: Mapping[str, str]) -> tuple[Ineligible, ...]:
    """Group devices by reason, the most frequent first."""
    found: dict[str, list[str]] = {}
    for device, reason in sorted(problems.items()):
        found.setdefault(reason, []).append(device)
    ordered = sorted(found.items(), key=lambda group: (-len(group[1]), group[0]))
    return tuple(Ineligible(reason=reason, devices=tuple(devices)) for reason, devices in ordered)
