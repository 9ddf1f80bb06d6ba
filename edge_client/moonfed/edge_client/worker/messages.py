"""Messages between the agent and its reader and trainer: one JSON object per line.

To both:         check, stop
To the reader:   read (manifest_file)
To the trainer:  train (job, samples: SampleCounts, other_work)
To the agent:    ready, progress (fraction, epoch, loss), log (level, text), stopped, failed (error, reason)
From the reader: read (samples, held_out, changed, other_work)
From the trainer: trained (samples, steps, metrics)
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from moonfed.assignment import AttemptId
from moonfed.encodings import Encodings
from moonfed.sandbox.policy import Level
from moonfed.training_spec import TrainingSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """Settings that stay constant while a device runs."""

    state: str  # the state directory
    device: str  # the device's name
    data: str  # FOLDER, FILE.npz or module:callable
    accelerator: str  # cpu or cuda
    holdout: float  # fraction of the samples that only evaluate
    threads: int | None = None  # torch's threads; None: torch chooses
    precision: str = "float32"  # see moonfed.plan.load_plan, as for the memory format
    memory_format: str | None = None
    max_steps: int | None = None  # optimiser steps in one round; None: all that the round asks for
    max_seconds: float | None = None  # of local training in one round
    max_memory: int | None = None  # bytes that local training may take
    sandbox: Level = "strict"  # of the trainer
    labels: Mapping[str, str] = field(default_factory=dict)  # by which runs select devices


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One round of local training; its files are verified already.

    `files`, by role: the global `model`, and the rest of the manifest's downlink. `counted`: the stored attempt whose
    device state is in effect. `previous_models`, newest first, and `kept`, by role, are the device's own files.
    """

    id: AttemptId
    training: TrainingSpec
    seed: int
    digest: str  # the assignment's
    manifest_file: str
    plan_file: str
    files: Mapping[str, str]
    counted: AttemptId | None = None
    encodings: Encodings = field(default_factory=Encodings)  # of the global model's file, and of the update's model
    max_steps: int | None = None
    max_seconds: float | None = None  # the remainder of the device's budget and window when the job was created
    began: float | None = None  # that moment, by the monotonic clock, which all processes of the machine share
    previous_models: tuple[str, ...] = ()
    kept: Mapping[str, str] = field(default_factory=dict)

    @property
    def counted_key(self) -> tuple[int, int]:
        """The round and attempt whose stored device state counts; (0, 0): none."""
        return (self.counted.round, self.counted.attempt) if self.counted else (0, 0)

    def to_document(self) -> dict[str, Any]:
        """Return JSON values."""
        return asdict(self) | {"training": self.training.to_document(), "encodings": self.encodings.to_document()}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Job:
        """Read what `to_document` wrote."""
        counted = document["counted"]
        read = {
            "id": AttemptId(**document["id"]),
            "training": TrainingSpec.from_document(document["training"]),
            "counted": AttemptId(**counted) if counted else None,
            "encodings": Encodings.from_document(document["encodings"]),
            "previous_models": tuple(document["previous_models"]),
        }
        return cls(**(dict(document) | read))


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleCounts:
    """Numbers of the samples that the reader wrote; `version` changes whenever the samples do."""

    samples: int  # to train on
    held_out: int
    version: int


def encode(kind: str, **fields: object) -> bytes:
    """Return a message as one line."""
    return json.dumps({"kind": kind, **fields}).encode() + b"\n"


def decode(line: bytes) -> tuple[str, dict[str, Any]]:
    """Return a line's kind and fields."""
    fields = json.loads(line)
    return fields.pop("kind"), fields
