"""Evaluations of global models, on test sets and on devices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime

from moonfed.bundle.manifest import ACCURACY, Metric
from moonfed.control.held_out_score import HeldOutScore
from moonfed.control.runs import Ineligible


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceScore:
    """A global model's result on one device's holdout, next to the model that the device trained itself."""

    device: str
    samples: int
    score: float  # the evaluation's metric of the global model
    local_score: float | None = None  # of the device's own model; None: it has none


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceEvaluation:
    """A global model's evaluation on devices, each of which counts the same."""

    run: str
    round: int
    number: int  # of this model's evaluations, from 1
    opened: datetime
    deadline: datetime
    closed: datetime | None = None  # None: devices may still answer
    scores: tuple[DeviceScore, ...] = ()  # by device
    skipped: tuple[Ineligible, ...] = ()  # devices that declined, by reason; most have no holdout, or too small a one
    waiting: tuple[str, ...] = ()  # devices that have not answered; once it is closed, they never will
    metric: Metric = ACCURACY  # of the scores
    median: float | None = None  # of the devices' scores; None: no scores
    worst_decile: float | None = None  # mean over the tenth of the devices, rounded up, with the worst
    compared: int = 0  # devices that also scored their own model
    worse: int = 0  # of them, those on which the global model is worse

    def worst(self, number: int) -> list[DeviceScore]:
        """Return the scores of the devices on which the model is worst, the worst first."""
        sign = 1 if self.metric.maximise else -1
        return sorted(self.scores, key=lambda found: (sign * found.score, -found.samples, found.device))[:number]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """An evaluation of one global model, on a test set or on devices."""

    run: str
    round: int  # 0: the initial weights
    test_set: str | None = field(init=False)  # None: on devices
    metric: str | None = field(init=False)  # by which models are compared
    value: float | None = field(init=False)  # of this metric on a test set; on devices, the median
    loss: float | None = field(init=False)  # None: on devices, which report none
    samples: int = field(init=False)
    score: HeldOutScore | None = None  # on a test set
    on_devices: DeviceEvaluation | None = None

    def __post_init__(self) -> None:
        for name, value in self._summary():
            object.__setattr__(self, name, value)

    def _summary(self) -> Iterator[tuple[str, object]]:
        score, devices = self.score, self.on_devices
        yield "test_set", score.test_set if score else None
        yield "metric", score.metric.name if score else devices.metric.name if devices else None
        yield "value", score.score if score else devices.median if devices else None
        yield "loss", score.metrics.get("loss") if score else None
        yield "samples", score.samples if score else sum(one.samples for one in devices.scores) if devices else 0
