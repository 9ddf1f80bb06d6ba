"""Heartbeats of the reader and the trainer to the agent."""

from __future__ import annotations

import time

from moonfed.sandbox.ipc import ParentPipe, Stopped

HEARTBEAT_SECONDS = 1.0  # between two heartbeats
OTHER_WORK_SHARE = 0.01  # share of a round for work other than steps: reading data, references, surveys, holdout


class Heartbeats:
    """The progress of one round, reported to the agent at most once per HEARTBEAT_SECONDS.

    Fractions increase strictly with every unit of work, so that the coordinator can detect a stalled device.
    """

    def __init__(self, parent: ParentPipe, other_work: int = 0) -> None:
        """`other_work`: units of work other than steps that the round has taken already."""
        self._parent, self.other_work = parent, other_work
        self._loss: float | None = None
        self._next = 0.0

    def work(self) -> None:
        """Report a unit of work other than steps; raise Stopped if the agent asked to stop."""
        self.report(0.0, 0, None)

    def report(self, fraction: float, epoch: int, loss: float | None) -> None:
        """Report a unit of work; `epoch`: 0 for work other than steps. Raise Stopped if the agent asked to stop."""
        self.other_work += epoch == 0
        self._loss = loss if loss is not None else self._loss
        if self._parent.stop_requested.is_set():
            raise Stopped
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + HEARTBEAT_SECONDS
            other_work = self.other_work / (self.other_work + 1)
            reported = (1 - OTHER_WORK_SHARE) * fraction + OTHER_WORK_SHARE * other_work
            self._parent.send("progress", fraction=reported, epoch=epoch, loss=self._loss)
