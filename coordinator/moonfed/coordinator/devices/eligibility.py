"""Whether a device that attends can take part in a run."""

from __future__ import annotations

from collections.abc import Collection

from moonfed.coordinator.devices.sessions import DeviceInfo, DeviceSession, RemoteSession, Sessions
from moonfed.coordinator.rounds.protocol import round_protocol
from moonfed.coordinator.rounds.settings import RunSettings
from moonfed.errors import VersionMismatch
from moonfed.labels import lacking, write_labels
from moonfed.manifest import Manifest


def misfit(introduction: DeviceInfo, manifest: Manifest, settings: RunSettings) -> str | None:
    """What a device lacks that a run needs, as in "without the encoding int8"; None if it can take part."""
    if manifest.plan.interface not in introduction.plan_interfaces:
        return f"without the plan interface {manifest.plan.interface}"
    if unknown := settings.encodings.needed - set(introduction.encodings):
        return f"without the encoding {', '.join(sorted(unknown))}"
    if missing := lacking(introduction.labels, settings.labels):
        return f"without the label {write_labels(missing)}"
    return None


def incompatibility(introduction: DeviceInfo, interfaces: Collection[str]) -> VersionMismatch | None:
    """Why a device can take part in no run whose plan has one of these interfaces; None if there are none."""
    if not interfaces or set(interfaces) & set(introduction.plan_interfaces):
        return None
    understood = ", ".join(introduction.plan_interfaces) or "none"
    return VersionMismatch(
        f"device {introduction.device!r} understands these plan interfaces: {understood}; "
        f"the running runs need {', '.join(sorted(interfaces))}"
    )


class EligibleDevices:
    """The attending devices that can take part in a run that is driven here, and what the others lack."""

    def __init__(self, attendance: Sessions, manifest: Manifest, settings: RunSettings) -> None:
        self._attendance, self._manifest, self._settings = attendance, manifest, settings
        self.misfits: dict[str, str] = {}  # who attended and could not take part when it was last looked for

    def sessions(self) -> list[DeviceSession]:
        """All of them."""
        return [session for session in self._attendance.sessions() if self._misfit(session) is None]

    def find(self, device: str) -> DeviceSession | None:
        """One's present session; None if it is not here, or is noted to lack something."""
        session = self._attendance.find(device)
        self.misfits.pop(device, None)
        if session and (problem := self._misfit(session)):
            self.misfits[device] = problem
            return None
        return session

    def _misfit(self, session: DeviceSession) -> str | None:
        if round_protocol(self._settings).holder_only and isinstance(session, RemoteSession):
            return "at another coordinator, whose devices have no part in asynchronous rounds"
        return misfit(session.introduction, self._manifest, self._settings)
