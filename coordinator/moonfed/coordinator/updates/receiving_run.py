"""The interface of a run that receives updates."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from moonfed.blobs.store import BlobRef
from moonfed.bundle.manifest import Manifest
from moonfed.coordinator.records import AttemptId, DeviceReport, RunRecord
from moonfed.coordinator.updates.admission import Admission


class ReceivingRun(Protocol):
    """The part of a running run that handles an update from its header to its receipt."""

    record: RunRecord
    manifest: Manifest
    largest_files: Mapping[str, int]  # of an update, in bytes, by role

    def admit(self, attempt: AttemptId, device: str) -> Admission:
        """Admit a device's update; the admission may be rejected at once, and is withdrawn when the round closes."""

    async def count(self, admission: Admission, receipt: DeviceReport, files: Mapping[str, Path]) -> None:
        """Count a checked update, whose files, by role, are durable; counting it again changes nothing."""

    async def reject(self, report: DeviceReport) -> None:
        """Record that a device's update failed its checks."""

    def base_model(self, attempt: AttemptId) -> BlobRef:
        """Return the global model that the attempt started from; raises WrongState if that round has ended."""

    def needs(self, attempt: AttemptId) -> bool:
        """Return True if updates of that attempt may still arrive, or wait to be reduced."""
