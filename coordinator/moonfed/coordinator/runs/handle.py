"""The interface of a running run, whether this coordinator drives or follows it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from moonfed.coordinator.records import AttemptId, DeviceReport, RunView
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

    async def decline(self, report: DeviceReport, *, permanent: bool = False) -> None:
        """Record that a device will deliver no update; repeating it changes nothing.

        `permanent`: the device is not eligible for this run until it connects again.
        """

    def report(self, attempt: AttemptId, device: str, fraction: float) -> WrongState | None:
        """Publish a device's progress; return why the run no longer counts its update, if so."""

    async def stop(self) -> None:
        """End the run; a round that is being reduced is still committed."""

    def publish_metrics(self, round_: int, metrics: Mapping[str, float]) -> None:
        """Publish new metrics of a global model."""

    async def view(self) -> RunView:
        """Return the run as operators see it."""

    async def watch(self) -> tuple[RunView, Subscriber]:
        """Return a snapshot, and a subscriber to every later event."""

    def unwatch(self, subscriber: Subscriber) -> None:
        """Remove a subscriber."""

    def close(self, reason: MoonfedError) -> None:
        """Stop serving the run at this coordinator."""
