"""The interface through which a coordinator reports what it measures; this implementation ignores everything.

`moonfed.coordinator.metrics` exports the measurements. Calls take microseconds and never raise; every method may be
called from any thread.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Literal

RunOutcome = Literal["finished", "stopped", "failed"]
UpdateOutcome = Literal["accepted", "rejected", "refused", "declined", "lost", "missing"]
# The reasons of each outcome. A fixed set: what devices write about themselves never becomes a label.
UPDATE_REASONS: dict[UpdateOutcome, tuple[str, ...]] = {
    "accepted": ("valid",),
    "rejected": ("invalid", "too_large", "damaged"),
    "refused": ("late", "duplicate", "disk_budget", "unavailable"),
    "declined": ("ineligible", "device", "removed"),
    "lost": ("silent", "left"),
    "missing": ("unfinished",),
}


class Observer:
    """Receiver of a coordinator's measurements."""

    def call_ended(self, method: str, status: str, seconds: float) -> None:
        """Note a gRPC call, by its full method and its status code's name."""

    def update_ended(self, outcome: UpdateOutcome, reason: str) -> None:
        """Note what became of one device's update; `reason`: one of UPDATE_REASONS."""

    def update_refused(self, error: Exception) -> None:
        """Note an update that the coordinator did not receive or count now because of this error."""

    def received(self, encoding: str, size: int) -> None:
        """Note bytes of an update."""

    def download(self, sha256: str) -> Callable[[int], None]:
        """Begin a device's download of a blob; return a function that notes bytes sent. Blocking."""
        return _ignore

    def run_ended(self, outcome: RunOutcome) -> None:
        """Note the end of a run."""

    def reducing(self) -> AbstractContextManager[None]:
        """Observe the memory of a round's reduction for as long as the context lasts."""
        return nullcontext()

    def wrote(self, seconds: float) -> None:
        """Note a durable transaction of the database."""

    def fsynced(self, seconds: float) -> None:
        """Note an fsync of a file or a directory."""


def _ignore(_size: int) -> None:
    pass


SILENT = Observer()
