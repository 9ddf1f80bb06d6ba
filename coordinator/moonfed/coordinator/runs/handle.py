"""The interface of a running run, whether this coordinator drives or follows it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set
from typing import Protocol

from moonfed.control.runs import Run
from moonfed.coordinator.records import AttemptId, DeviceReport, EligibilityReport
from moonfed.coordinator.rounds.state import State
from moonfed.coordinator.runs.subscribers import Subscriber
from moonfed.coordinator.updates.receiving_run import ReceivingRun
from moonfed.errors import MoonfedError, WrongState


class RunHandle(ReceivingRun, Protocol):
    """A running run, driven by `runs.driver` or followed by `runs.follower`."""

    state: State

    async def start(self) -> None:
        """Begin, or resume, with the devices that are online."""

    async def refresh(self, device: str) -> None:
        """Update the run's knowledge of whether a device is online; the order of such calls does not matter."""

    async def catch_up(self) -> None:
        """Apply what other replicas have recorded."""

    async def report_eligibility(self, report: EligibilityReport) -> bool:
        """Record whether a device is eligible for the run; return False for a repetition."""

    async def forget_removed(self, known: Collection[str]) -> None:
        """Forget the answers of devices that operators removed, renamed or revoked, and expect no update from them.

        `known`: the names of the others.
        """

    async def decline(self, report: DeviceReport) -> None:
        """Record that a device will deliver no update. Idempotent."""

    def report(self, attempt: AttemptId, device: str, fraction: float) -> WrongState | None:
        """Publish a device's progress; return why the run no longer counts its update, if so."""

    async def stop(self) -> None:
        """End the run; a round that is being reduced is still committed."""

    async def set_paused(self, *, paused: bool) -> None:
        """Assign no more work while `paused`; work in progress is finished and counts."""

    def publish_metrics(self, round_: int, metrics: Mapping[str, float]) -> None:
        """Publish new metrics of a global model."""

    def eligible(self) -> Set[str]:
        """Return the online devices that may train the run."""

    def progress(self) -> dict[str, float]:
        """Return the progress reported here of each device that the open round waits for; a fraction, 0 if none yet."""

    async def view(self) -> Run:
        """Return the run as operators see it."""

    async def watch(self) -> tuple[Run, Subscriber]:
        """Return a snapshot, and a subscriber to every later event."""

    def unwatch(self, subscriber: Subscriber) -> None:
        """Remove a subscriber."""

    def close(self, reason: MoonfedError) -> None:
        """Stop serving the run at this coordinator."""
