"""Assignments as the device understands them, and the inbox where they wait for their turn."""

from __future__ import annotations

import hashlib
import json
import math
import threading
from collections.abc import Mapping
from dataclasses import dataclass

from moonfed.blobs import BlobRef
from moonfed.errors import InvalidInput
from moonfed.manifest import MODEL
from moonfed.transport import from_message
from moonfed.v1 import fleet_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """One device's work in one round; see Assignment in fleet.proto."""

    run: str
    round: int
    attempt: int
    manifest: BlobRef
    blobs: Mapping[str, BlobRef]  # by role
    epochs: int
    batch_size: int
    hyperparameters: Mapping[str, float]
    seed: int
    views: int = 0
    counted_round: int = 0
    counted_attempt: int = 0

    def __post_init__(self) -> None:
        for field in ("round", "attempt", "epochs", "batch_size"):
            if getattr(self, field) < 1:
                raise InvalidInput(f"{field} is {getattr(self, field)}; it must be a whole number from 1")
        if MODEL not in self.blobs:
            raise InvalidInput(f"the assignment has blobs {sorted(self.blobs)}; {MODEL!r} must be among them")
        if self.counted_round >= self.round:
            raise InvalidInput(f"counted_round is {self.counted_round}; it must be less than the round, {self.round}")
        for name, value in self.hyperparameters.items():
            if not math.isfinite(value):
                raise InvalidInput(f"hyperparameter {name!r} is {value}; it must be finite")

    def __str__(self) -> str:
        return f"run {self.run}, round {self.round}" + (f", attempt {self.attempt}" if self.attempt > 1 else "")

    @property
    def place(self) -> tuple[str, int, int]:
        """Names the assignment."""
        return self.run, self.round, self.attempt

    def digest(self, max_steps: int | None = None, max_seconds: float | None = None, between: str = "") -> str:
        """Stands for all that a device is told and an update depends on, its own budgets as configured included.

        A new run with an old one's name has work of the same place.
        """
        what = [
            self.manifest.sha256,
            sorted((role, ref.sha256) for role, ref in self.blobs.items()),
            (self.epochs, self.batch_size, self.views),
            (max_steps, max_seconds, between),
            sorted(self.hyperparameters.items()),
            self.seed,
            (self.counted_round, self.counted_attempt),
        ]
        return hashlib.sha256(json.dumps(what).encode()).hexdigest()


def read_assignment(message: fleet_pb2.Assignment) -> Assignment:
    """Checks what came off the network; InvalidInput names what is wrong."""
    return Assignment(
        run=message.run,
        round=message.round,
        attempt=message.attempt,
        manifest=from_message(message.manifest),
        blobs={role: from_message(blob) for role, blob in message.blobs.items()},
        epochs=message.epochs,
        batch_size=message.batch_size,
        hyperparameters=dict(message.hyperparameters),
        seed=message.seed,
        views=message.views,
        counted_round=message.counted_round,
        counted_attempt=message.counted_attempt,
    )


class Inbox:
    """The newest assignment of each run, oldest run first; one is worked on at a time."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: dict[str, Assignment] = {}
        self._current: Assignment | None = None

    def put(self, assignment: Assignment) -> None:
        """Adds an assignment; the coordinator says it again when a device comes back, which changes nothing."""
        with self._changed:
            if assignment != self._current:
                self._waiting[assignment.run] = assignment
                self._changed.notify_all()

    def take(self, seconds: float) -> Assignment | None:
        """Waits for the next assignment and makes it the current one; None if there is none in time."""
        with self._changed:
            self._current = None
            if not self._changed.wait_for(lambda: self._waiting, seconds):
                return None
            self._current = self._waiting.pop(next(iter(self._waiting)))
            return self._current

    def superseded(self, seconds: float = 0.0) -> bool:
        """Whether the current assignment's run has a newer one; waits for that up to some seconds."""
        with self._changed:
            return self._changed.wait_for(self._has_newer, seconds)

    def _has_newer(self) -> bool:
        return self._current is not None and self._current.run in self._waiting
