"""Metrics of packages, which an evaluator computes beside those of the task.

Legend: N samples.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import ClassVar

import numpy as np

from moonfed.bundle.manifest import Metric
from moonfed.bundle.target import TargetSpec
from moonfed.errors import InvalidInput
from moonfed.registry import Registry
from moonfed.tasks.figure import LOWER_IS_BETTER, is_lower_better
from moonfed.tasks.task import Array

GROUP = "moonfed.metrics"
RESERVED = ("holdout_", "train_")  # beginnings of the names of what devices report


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedMetric(ABC):
    """A measure of a model's outputs on a whole test set: a frozen dataclass, whose fields have defaults."""

    name: ClassVar[str]  # of the entry point, and of what is recorded
    maximise: ClassVar[bool]  # whether more is better

    @abstractmethod
    def compute(self, outputs: Array, targets: Array, target: TargetSpec) -> float:
        """Return the value, a finite number.

        `outputs` [N, …] are the graph's, and `targets` [N, …] those of the data, in the types and shapes that
        docs/plan-interface.md has for the target's kind; `target` names classes, labels or values.
        """


ADDED_METRICS: Registry[AddedMetric] = Registry("metric", GROUP, f"{__name__}:AddedMetric", {})


def read_added_metrics(names: Sequence[str]) -> tuple[AddedMetric, ...]:
    """Return the metrics of these names, each once; InvalidInput for one that is unknown, or that may not be called so.

    The name must tell the direction, because it is all that early stopping knows of a metric that is not the task's.
    """
    if names and not ADDED_METRICS:
        rest = f", and no package with an entry point of the group {GROUP!r} is installed"
        raise InvalidInput(field="metric", value=names[0], rest=rest)
    found = tuple(ADDED_METRICS.select(name)() for name in dict.fromkeys(names))
    for each in found:
        Metric(name=each.name, maximise=each.maximise, share=False)  # which checks the name
        if each.name.startswith(RESERVED):
            rest = f"; it must not begin with {' or '.join(RESERVED)}, as names of what devices report do"
            raise InvalidInput(field="metric", value=each.name, rest=rest)
        if each.maximise == is_lower_better(each.name):
            ends = ", ".join(LOWER_IS_BETTER)
            rest = f" and its maximise {each.maximise}; names that end with {ends}, and no others, are better if lower"
            raise InvalidInput(field="metric", value=each.name, rest=rest)
    return found


def compute_added(
    metrics: Sequence[AddedMetric], outputs: Sequence[Array], targets: Array, target: TargetSpec
) -> dict[str, float]:
    """Return the values of metrics from batches of outputs; InvalidInput if one fails or returns no finite number."""
    if not metrics:
        return {}
    whole, wanted = np.concatenate(outputs), targets.view()
    whole.flags.writeable = wanted.flags.writeable = False  # for the next metric, and the next model
    return {metric.name: _value(metric, whole, wanted, target) for metric in metrics}


def _value(metric: AddedMetric, outputs: Array, targets: Array, target: TargetSpec) -> float:
    try:
        value: object = metric.compute(outputs, targets, target)
    except Exception as error:  # a package's code may raise anything
        reason = (str(error).strip().splitlines() or [""])[0]
        rest = f", which fails: {type(error).__name__}: {reason}"
        raise InvalidInput(field="metric", value=metric.name, rest=rest) from error
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        rest = f", which returns {value!r:.100}; it must return a finite number"
        raise InvalidInput(field="metric", value=metric.name, rest=rest)
    return float(value)
