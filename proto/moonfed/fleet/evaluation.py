"""Evaluations of a global model on devices' holdouts, as asked by the coordinator and answered by devices."""

from __future__ import annotations

from dataclasses import dataclass

from moonfed.blobs.store import BlobRef
from moonfed.errors import InvalidInput
from moonfed.validate import require_whole

# Fewer samples would tell much about each of them, and an accuracy of little worth.
MIN_HOLDOUT = 20
MAX_HOLDOUT = 1_000_000_000  # more is a mistake


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationTask:
    """A request to score a global model and the device's own latest; EvaluationTask in fleet.proto."""

    run: str
    round: int  # of the global model; 0: the initial weights
    number: int  # of the model's evaluations, from 1
    manifest: BlobRef
    model: BlobRef  # float32
    seed: int  # the run's, which with the manifest distinguishes runs of the same name
    signature: BlobRef | None = None  # of the bundle; None: it is not signed

    def __post_init__(self) -> None:
        require_whole("round", self.round, 0)
        require_whole("number", self.number, 1)

    def __str__(self) -> str:
        return f"run {self.run}, evaluation of global model {self.round}"

    @property
    def log_fields(self) -> dict[str, object]:
        """Fields of the log's lines about the evaluation."""
        return {"run": self.run, "round": self.round}

    @property
    def key(self) -> tuple[str, int, int]:
        """Identify the evaluation among those of all runs."""
        return self.run, self.round, self.number


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldoutCounts:
    """All that leaves a device: numbers of samples of its holdout. Raises InvalidInput naming the field."""

    samples: int
    correct: int  # of the global model
    local_correct: int | None = None  # of the device's own latest model of the run; None: it has none

    def __post_init__(self) -> None:
        require_whole("samples", self.samples, MIN_HOLDOUT, MAX_HOLDOUT)
        for name, value in (("correct", self.correct), ("local_correct", self.local_correct)):
            if value is not None and not 0 <= value <= self.samples:
                raise InvalidInput(field=name, value=value, allowed=f"from 0 to {self.samples}, the number of samples")
