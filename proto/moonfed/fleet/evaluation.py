"""Evaluations of a global model on devices' holdouts, as asked by the coordinator and answered by devices."""

from __future__ import annotations

import math
from dataclasses import dataclass

from moonfed.blobs.store import BlobRef
from moonfed.bundle.manifest import Metric
from moonfed.validate import require, require_whole

# Fewer samples would tell much about each of them, and a score of little worth.
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
    required_plan: str = ""  # the only plan interface that the run permits; empty: any

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
class HoldoutScores:
    """All that leaves a device: the size of its holdout and two scores. Raises InvalidInput naming the field."""

    samples: int
    score: float  # the manifest's metric of the global model
    local_score: float | None = None  # of the device's own latest model of the run; None: it has none

    def __post_init__(self) -> None:
        require_whole("samples", self.samples, MIN_HOLDOUT, MAX_HOLDOUT)
        for name, value in (("score", self.score), ("local_score", self.local_score)):
            require(value is None or math.isfinite(value), name, value, "a finite number")

    def require_fits(self, metric: Metric) -> None:
        """Raise InvalidInput for a score that the metric cannot have."""
        metric.require_possible("score", self.score)
        if self.local_score is not None:
            metric.require_possible("local_score", self.local_score)
