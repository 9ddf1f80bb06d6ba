"""Evaluations of global models, on test sets and on devices."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from moonfed.client.records.runs import Ineligible
from moonfed.control.held_out_score import HeldOutScore


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceScore:
    """A global model's result on one device's holdout, next to the model that the device trained itself."""

    device: str
    samples: int
    accuracy: float  # of the global model, 0 to 1
    local_accuracy: float | None  # of the device's own; None: it has none


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceEvaluation:
    """A global model's evaluation on devices."""

    number: int  # of this model's evaluations, from 1
    opened: datetime
    deadline: datetime
    closed: datetime | None  # None: devices may still answer
    scores: tuple[DeviceScore, ...]
    skipped: tuple[Ineligible, ...]  # devices that declined, by reason
    waiting: tuple[str, ...]  # devices that have not answered
    median: float | None  # of the devices' accuracies; None: no scores
    worst_decile: float | None  # mean accuracy of the worst tenth of the devices
    compared: int  # devices that also scored their own model
    worse: int  # of them, those on which the global model is less accurate


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """An evaluation of one global model; `details` has classes and confusion matrix, or the devices' scores."""

    run: str
    round: int  # 0: the initial weights
    test_set: str | None  # None: on devices
    accuracy: float | None  # on a test set; on devices, the median
    loss: float | None  # None: on devices, which report none
    samples: int
    details: HeldOutScore | DeviceEvaluation
