"""Jobs for the trainer: one round of local training, or scoring models on the holdout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from moonfed.encodings import Encodings
from moonfed.fleet.assignment import AttemptId
from moonfed.plan.training_spec import TrainingSpec
from moonfed.version import PLAN_INTERFACE


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
    parts: Mapping[str, str] = field(default_factory=dict)  # the bundle's files of frozen and of personal tensors
    plan_interface: str = PLAN_INTERFACE  # of the plan file
    counted: AttemptId | None = None
    encodings: Encodings = field(default_factory=Encodings)  # of the global model's file, and of the update's model
    clip_norm: float = 0.0  # the assignment's
    max_steps: int | None = None
    max_seconds: float | None = None  # the remainder of the device's budget and window when the job was created
    began: float | None = None  # that moment, by the monotonic clock, which all processes of the machine share
    previous_models: tuple[str, ...] = ()
    kept: Mapping[str, str] = field(default_factory=dict)
    personal_lost: bool = False  # the device trained before in this run, and has no personal tensors of its own left

    @property
    def counted_key(self) -> tuple[int, int]:
        """The round and attempt whose stored device state counts; (0, 0): none."""
        return (self.counted.round, self.counted.attempt) if self.counted else (0, 0)

    @property
    def sends_copy(self) -> bool:
        """True unless the update is the trained model's own file."""
        return self.encodings.updates_encoded or self.clip_norm > 0

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
class ScoreJob:
    """Models to score on the holdout; their files are verified already."""

    manifest_file: str
    plan_file: str
    model: str  # the global model's file
    parts: Mapping[str, str] = field(default_factory=dict)  # the bundle's files of frozen and of personal tensors
    plan_interface: str = PLAN_INTERFACE  # of the plan file
    personal: str | None = None  # the device's own tensors, without which the bundle's are used
    local_model: str | None = None  # the device's own

    @property
    def models(self) -> tuple[str, ...]:
        """The files of the models, the global one first."""
        return (self.model, *([self.local_model] if self.local_model else []))
