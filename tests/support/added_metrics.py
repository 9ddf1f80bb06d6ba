"""A metric of a package, for tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from moonfed.bundle.target import TargetSpec
from moonfed.tasks.added_metric import AddedMetric
from moonfed.tasks.task import Array


@dataclass(frozen=True, slots=True, kw_only=True)
class MissedError(AddedMetric):
    name: ClassVar[str] = "missed_error"
    maximise: ClassVar[bool] = False

    def compute(self, outputs: Array, targets: Array, target: TargetSpec) -> float:
        return float((outputs.argmax(axis=1) != targets).mean())
