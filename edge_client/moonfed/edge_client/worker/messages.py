"""What the light parent and the training child say to each other: one JSON object in a line.

To the child:    check, train (a Job), stop
To the parent:   ready, progress (fraction, epoch, loss), note (level, text), trained, stopped, failed (error, reason)
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from moonfed.encodings import Encodings, parse_encodings


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """What does not change while a device runs."""

    state: str  # the state directory
    device: str  # the device's name
    data: str  # FOLDER, FILE.npz or module:callable
    accelerator: str  # cpu or cuda
    holdout: float  # fraction of the samples that only evaluate
    threads: int | None = None  # torch's; None: its own choice
    precision: str = "float32"  # see moonfed.plan.load_plan, as for the memory format
    memory_format: str | None = None
    max_steps: int | None = None  # optimiser steps in one round; None: all that the round asks for
    max_seconds: float | None = None  # of local training in one round
    max_memory: int | None = None  # bytes that local training may take
    labels: Mapping[str, str] = field(default_factory=dict)  # what runs may pick this device by


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One round of local training; the files were checked by whoever made the job.

    `files`, by role: the global `model`, and what else the round begins with of the manifest's downlink.
    `counted_round` and `counted_attempt`: the stored round whose device state counts; 0: none.
    """

    run: str
    round: int
    attempt: int
    epochs: int
    batch_size: int
    hyperparameters: Mapping[str, float]
    seed: int
    digest: str  # the assignment's
    manifest_file: str
    plan_file: str
    files: Mapping[str, str]
    views: int = 0
    max_steps: int | None = None
    max_seconds: float | None = None  # what was left as the job was made: of the device's budget, and of its window
    began: float | None = None  # when that was, by the machine's monotonic clock, which all its processes share
    counted_round: int = 0
    counted_attempt: int = 0
    downlink_encoding: str = ""  # of the global model's file; see moonfed.encodings
    uplink_encoding: str = ""  # that the update's model is handed in with

    @property
    def encodings(self) -> Encodings:
        """Both, as values."""
        return parse_encodings(self.downlink_encoding, self.uplink_encoding)


def encode(kind: str, **fields: object) -> bytes:
    """One line."""
    return json.dumps({"kind": kind, **fields}).encode() + b"\n"


def decode(line: bytes) -> tuple[str, dict[str, Any]]:
    """A line's kind and fields."""
    fields = json.loads(line)
    return fields.pop("kind"), fields
