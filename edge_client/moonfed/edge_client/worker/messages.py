"""Messages between the agent and its reader and trainer: one JSON object per line.

To both:         check (to the trainer with operators, which torch must have), stop
To the reader:   read (spec, target, room)
To the trainer:  train (job, samples: SampleCounts, other_work), score (the same)
To the agent:    ready, progress (fraction, epoch, loss), log (level, text), stopped, failed (error, reason)
From the reader: read (samples, held_out, classes, files, changed, other_work)
From the trainer: ready (runtime, capacity), trained (samples, steps, metrics), scored (scores)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from moonfed.bundle.manifest import InputSpec
from moonfed.bundle.target import TargetSpec
from moonfed.errors import InvalidInput
from moonfed.plan.selection import AUTO, FORMATS
from moonfed.sandbox.policy import Level


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """Settings that stay constant while a device runs."""

    state: str  # the state directory
    device: str  # the device's name
    data: str  # see moonfed.data.formats; empty: inference only
    accelerator: str  # cpu or cuda
    holdout: float  # fraction of the samples that only evaluate
    target: str = ""  # column of a table with the labels; empty: the bundle's
    ignored_folders: Sequence[str] = ()  # of a folder of images
    threads: int | None = None  # torch's threads; None: torch chooses
    precision: str = "float32"  # see moonfed.plan.interface.load_plan, as for the memory format
    memory_format: str | None = None
    max_steps: int | None = None  # optimiser steps in one round; None: all that the round asks for
    max_seconds: float | None = None  # of local training in one round
    max_memory: int | None = None  # bytes that local training may take
    sandbox: Level = "strict"  # of the trainer
    labels: Mapping[str, str] = field(default_factory=dict)  # by which runs select devices
    plan_interfaces: Sequence[str] = FORMATS[AUTO]  # that this device runs, the preferred one first

    def require_data(self) -> None:
        """Raise InvalidInput if this device is for inference only."""
        if not self.data:
            raise InvalidInput("this device has no data; it runs for inference only")


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleCounts:
    """Numbers of the samples that the reader wrote; `version` changes whenever the samples do."""

    samples: int  # to train on
    held_out: int
    version: int
    classes: Sequence[int] = ()  # those of the samples to train on
    files: Mapping[str, Sequence[int]] = field(default_factory=dict)  # see `map_samples`; none: all are in memory


def wanted_samples(spec: InputSpec, target: TargetSpec, room: int | None = None) -> dict[str, Any]:
    """Return the fields of `read`: the form of the samples and of their targets, and the memory that they may take."""
    return {"spec": spec.to_document(), "target": target.to_document(), "room": room}
