"""Assignments and ended runs as the device understands them, and the inbox where they wait for their turn."""

from __future__ import annotations

import hashlib
import json
import math
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from moonfed.blobs import BlobRef
from moonfed.encodings import Encodings, parse_encodings
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
    encodings: Encodings = field(default_factory=Encodings)  # of the blob "model", and of the update's

    def __post_init__(self) -> None:
        for name in ("round", "attempt", "epochs", "batch_size"):
            if getattr(self, name) < 1:
                raise InvalidInput(f"{name} is {getattr(self, name)}; it must be a whole number from 1")
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
            self.encodings.to_document(),
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
        encodings=parse_encodings(message.downlink_encoding, message.uplink_encoding),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A run that is over; see Ended in fleet.proto."""

    run: str
    manifest: BlobRef | None  # both are None if the run left no model to use
    model: BlobRef | None
    rounds: int


def read_ended(message: fleet_pb2.Ended) -> Ended:
    """Checks what came off the network; InvalidInput names what is wrong."""
    finished = message.HasField("manifest") and message.HasField("model")
    return Ended(
        run=message.run,
        manifest=from_message(message.manifest) if finished else None,
        model=from_message(message.model) if finished else None,
        rounds=message.rounds,
    )


class Inbox:
    """The newest word on each run, oldest run first; one is worked on at a time."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: dict[str, Assignment | Ended] = {}
        self._current: Assignment | Ended | None = None

    def put(self, task: Assignment | Ended) -> None:
        """Adds a task; the coordinator says it again when a device comes back, which changes nothing."""
        with self._changed:
            if task != self._current:
                self._waiting[task.run] = task
                self._changed.notify_all()

    def idle(self) -> bool:
        """Whether nothing waits and nothing is worked on."""
        with self._changed:
            return self._current is None and not self._waiting

    def take(self, seconds: float) -> Assignment | Ended | None:
        """Waits for the next task and makes it the current one; None if there is none in time."""
        with self._changed:
            self._current = None
            if not self._changed.wait_for(lambda: self._waiting, seconds):
                return None
            self._current = self._waiting.pop(next(iter(self._waiting)))
            return self._current

    def superseded(self, seconds: float = 0.0) -> bool:
        """Whether there is newer word on the current task's run; waits for that up to some seconds."""
        with self._changed:
            return self._changed.wait_for(self._has_newer, seconds)

    def _has_newer(self) -> bool:
        return self._current is not None and self._current.run in self._waiting
