"""Assignments, eligibility checks and ended runs, as sent by the coordinator and received by devices."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from moonfed.blobs.store import BlobRef
from moonfed.bundle.manifest import MODEL
from moonfed.encodings import Encodings
from moonfed.errors import InvalidInput
from moonfed.plan.training_spec import TrainingSpec
from moonfed.validate import require_whole


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptId:
    """One attempt at one round of one run."""

    run: str
    round: int  # from 1
    attempt: int  # from 1; an abandoned round is retried under its number

    def __str__(self) -> str:
        return f"round {self.round}, attempt {self.attempt} of run {self.run!r}"

    @property
    def log_fields(self) -> dict[str, str | int]:
        """Fields of lines of the log, and attributes of spans, about the attempt."""
        return {"run": self.run, "round": self.round, "attempt": self.attempt}


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """One device's work in one round; Assignment in fleet.proto. Raises InvalidInput naming the field."""

    id: AttemptId
    manifest: BlobRef
    blobs: Mapping[str, BlobRef]  # by role; the global model is among them
    training: TrainingSpec
    seed: int  # the run's
    counted: AttemptId | None = None  # the latest attempt with this device's update in its model
    encodings: Encodings = field(default_factory=Encodings)  # of the blob "model", and of the update's
    signature: BlobRef | None = None  # of the bundle; None: it is not signed
    required_plan: str = ""  # the only plan interface that the run permits; empty: any
    clip_norm: float = 0.0  # with differential privacy, the longest change that may be sent, an L2 norm; 0: without
    traceparent: str = ""  # the context of its spans; empty: the coordinator does not trace

    def __post_init__(self) -> None:
        require_whole("round", self.id.round, 1)
        require_whole("attempt", self.id.attempt, 1)
        if MODEL not in self.blobs:
            raise InvalidInput(
                f"the assignment has blobs {sorted(self.blobs)}; {MODEL!r} must be among them",
                field="blobs",
                value=sorted(self.blobs),
            )
        if not (math.isfinite(self.clip_norm) and self.clip_norm >= 0):
            raise InvalidInput(field="clip_norm", value=self.clip_norm, allowed="a number of at least 0")
        if self.counted and self.counted.round >= self.id.round:
            raise InvalidInput(
                field="counted_round", value=self.counted.round, allowed=f"less than the round, {self.id.round}"
            )

    def __str__(self) -> str:
        attempt = f", attempt {self.id.attempt}" if self.id.attempt > 1 else ""
        return f"run {self.id.run}, round {self.id.round}{attempt}"

    @property
    def private(self) -> bool:
        """True if the run has differential privacy."""
        return self.clip_norm > 0

    def reported(self, metrics: Mapping[str, float]) -> Mapping[str, float]:
        """Return those of a round's metrics that are sent: with privacy none, since no noise covers them."""
        return {} if self.private else metrics

    @property
    def run(self) -> str:
        """The run's name."""
        return self.id.run

    @property
    def log_fields(self) -> dict[str, str | int]:
        """Fields of lines of the log, and attributes of spans, about the assignment."""
        return self.id.log_fields

    def digest(self, max_steps: int | None = None, max_seconds: float | None = None, between: str = "") -> str:
        """Hash everything that the update depends on, including the device's own configured budgets.

        The id is not enough: a new run may have an old run's name.
        """
        training = self.training
        content = [
            self.manifest.sha256,
            sorted((role, ref.sha256) for role, ref in self.blobs.items()),
            (training.epochs, training.batch_size, training.views),
            (max_steps, max_seconds, between),
            sorted(training.hyperparameters.items()),
            self.seed,
            (self.counted.round, self.counted.attempt) if self.counted else (0, 0),
            self.encodings.to_document(),
            self.required_plan,
            self.clip_norm,
        ]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class EligibilityCheck:
    """A request to check whether a device is eligible for a run; EligibilityCheck in fleet.proto."""

    run: str
    manifest: BlobRef
    signature: BlobRef | None = None  # of the bundle; None: it is not signed
    report_classes: bool = False  # the answer is to say which classes the device has
    required_plan: str = ""  # the only plan interface that the run permits; empty: any

    def __str__(self) -> str:
        return f"run {self.run}"

    @property
    def log_fields(self) -> dict[str, object]:
        """Fields of the log's lines about the check."""
        return {"run": self.run}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnded:
    """A run in which a device participated is over; RunEnded in fleet.proto."""

    run: str

    @property
    def log_fields(self) -> dict[str, object]:
        """Fields of the log's lines about the end."""
        return {"run": self.run}
