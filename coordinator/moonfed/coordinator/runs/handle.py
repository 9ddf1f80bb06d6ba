"""What the rest of the coordinator asks of a running run, whether it is driven here or followed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from moonfed.blobs import BlobRef
from moonfed.coordinator.records import AttemptId, DeviceReport, RunRecord, RunView
from moonfed.coordinator.rounds.state import State
from moonfed.coordinator.runs.subscribers import Subscriber
from moonfed.coordinator.support.tasks import BackgroundTasks
from moonfed.errors import MoonfedError, WrongState
from moonfed.manifest import Manifest


class RunHandle(Protocol):
    """A running run, driven by `runs.driver` or followed by `replicas.follower`."""

    record: RunRecord
    manifest: Manifest
    state: State
    background: BackgroundTasks

    async def start(self) -> None:
        """Begins, or goes on, with the devices that attend."""

    async def refresh(self, device: str) -> None:
        """Takes notice of whether a device attends now; the order of such calls does not matter."""

    async def catch_up(self) -> None:
        """Takes notice of what other replicas have recorded."""

    async def accept(self, report: DeviceReport, checked: Mapping[str, Path]) -> None:
        """Counts an update whose files, by role, were checked and are durable; doing so again changes nothing."""

    async def refuse(self, report: DeviceReport) -> None:
        """Notes that a device's update did not pass the checks."""

    async def decline(self, report: DeviceReport) -> None:
        """Notes that a device will deliver no update; saying so again changes nothing."""

    def report(self, attempt: AttemptId, device: str, fraction: float) -> WrongState | None:
        """Takes notice of progress; the reason if the device's update is no longer wanted."""

    async def stop(self) -> None:
        """Ends the run; a round that is being reduced is still committed."""

    def measured(self, round_: int, metrics: Mapping[str, float]) -> None:
        """Tells those who watch of new metrics."""

    def begun_with(self, attempt: AttemptId) -> BlobRef:
        """The global model that the open attempt's devices were given."""

    def is_over(self, attempt: AttemptId) -> bool:
        """Whether no update of that attempt is wanted, or none any more."""

    def may_have_receipt(self, attempt: AttemptId, device: str) -> bool:
        """Whether the device may have a receipt for an update of that attempt; if not, nobody needs to look."""

    def require_wanted(self, attempt: AttemptId, device: str) -> None:
        """Raises WrongState, naming the run's present round, if an update is not wanted now."""

    async def view(self) -> RunView:
        """What an operator sees of the run."""

    async def watch(self) -> tuple[RunView, Subscriber]:
        """A snapshot, and a watcher that is told everything after it."""

    def unwatch(self, watcher: Subscriber) -> None:
        """The watcher has gone."""

    def close(self, reason: MoonfedError) -> None:
        """Nothing more happens to the run here."""
