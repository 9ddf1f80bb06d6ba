"""Eligibility of devices for runs: plan interface, encodings, labels, and declined runs."""

from __future__ import annotations

from collections.abc import Collection

from moonfed.coordinator.devices.sessions import DeviceInfo, DeviceSession, RemoteSession, Sessions
from moonfed.coordinator.rounds.protocol import round_protocol
from moonfed.coordinator.rounds.settings import RunSettings
from moonfed.errors import VersionMismatch
from moonfed.labels import lacking, write_labels
from moonfed.manifest import Manifest


def ineligibility(info: DeviceInfo, manifest: Manifest, settings: RunSettings) -> str | None:
    """Return what a device lacks for a run, such as "without the encoding int8"; None if it is eligible."""
    if manifest.plan.interface not in info.plan_interfaces:
        return f"without the plan interface {manifest.plan.interface}"
    if unknown := settings.encodings.needed - set(info.encodings):
        return f"without the encoding {', '.join(sorted(unknown))}"
    if missing := lacking(info.labels, settings.labels):
        return f"without the label {write_labels(missing)}"
    return None


def incompatibility(info: DeviceInfo, interfaces: Collection[str]) -> VersionMismatch | None:
    """Return why a device supports no plan with one of these interfaces; None if it does, or if there are none."""
    if not interfaces or set(interfaces) & set(info.plan_interfaces):
        return None
    supported = ", ".join(info.plan_interfaces) or "none"
    return VersionMismatch(
        f"device {info.device!r} supports these plan interfaces: {supported}; "
        f"the running runs need {', '.join(sorted(interfaces))}"
    )


class EligibleDevices:
    """The online devices that are eligible for a run that this coordinator drives."""

    def __init__(self, sessions: Sessions, manifest: Manifest, settings: RunSettings) -> None:
        self._sessions, self._manifest, self._settings = sessions, manifest, settings
        self.ineligible: dict[str, str] = {}  # what each ineligible device lacked when it was last looked up
        self._excluded: dict[str, tuple[DeviceSession, str]] = {}  # by device: the session that declined the run

    def sessions(self) -> list[DeviceSession]:
        """Return the sessions of all eligible devices."""
        return [session for session in self._sessions.all() if self._ineligibility(session) is None]

    def find(self, device: str) -> DeviceSession | None:
        """Return a device's session; None if it is offline or ineligible; ineligibility is recorded."""
        session = self._sessions.find(device)
        self.ineligible.pop(device, None)
        if session and (problem := self._ineligibility(session)):
            self.ineligible[device] = problem
            return None
        return session

    def exclude(self, device: str, reason: str) -> None:
        """Treat a device that declines the run as ineligible until it reconnects."""
        if session := self._sessions.find(device):
            self._excluded[device] = session, f"it declines the run: {reason}"

    def _ineligibility(self, session: DeviceSession) -> str | None:
        excluded = self._excluded.get(session.device)
        if excluded and excluded[0] is session:
            return excluded[1]
        if round_protocol(self._settings).leaseholder_only and isinstance(session, RemoteSession):
            return "at another coordinator, whose devices cannot participate in asynchronous rounds"
        return ineligibility(session.info, self._manifest, self._settings)
