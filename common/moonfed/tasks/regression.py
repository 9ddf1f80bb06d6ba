"""Regression: values, or several steps of them, which makes it a forecast.

A model learns standardised values, and its graph returns them in their own units.
Sources: Huber loss: Huber, Robust Estimation of a Location Parameter (1964); pinball loss: Koenker, Bassett (1978).
Legend: B samples, H steps of a forecast, T values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from moonfed.bundle.manifest import Metric
from moonfed.bundle.target import Kind, TargetSpec
from moonfed.tasks.task import Array, Scorer, Task
from moonfed.validate import require, require_positive


class ValueScorer(Scorer):
    """Root mean squared error, mean absolute error and R², over all values, each in its own unit."""

    def __init__(self, values: int) -> None:
        self.count = 0
        self.sums = np.zeros((2, values))  # of squared errors, of absolute errors
        self.spread = np.zeros(values)  # sum of squared differences from the mean so far
        self.mean = np.zeros(values)

    def add(self, outputs: Array, targets: Array, inputs: Array) -> None:
        """Add predicted and true values [B, T] or [B, H, T]."""
        found, true = (each.reshape(-1, each.shape[-1]).astype(np.float64) for each in (outputs, targets))
        errors = found - true
        self.sums[0] += (errors**2).sum(axis=0)
        self.sums[1] += np.abs(errors).sum(axis=0)
        total = self.count + len(true)
        away = true.mean(axis=0) - self.mean
        self.spread += ((true - true.mean(axis=0)) ** 2).sum(axis=0) + away**2 * self.count * len(true) / total
        self.mean += away * len(true) / total
        self.count = total

    def metrics(self) -> dict[str, float]:
        """Return RMSE, MAE and R² (the mean over values that vary), and the mean squared error as the loss."""
        squared = self.sums[0]
        found = {
            "rmse": float(np.sqrt(squared.mean() / self.count)),
            "mae": float(self.sums[1].mean() / self.count),
        }
        varies = self.spread > 0
        if varies.any():
            found["r2"] = float(np.mean(1 - squared[varies] / self.spread[varies]))
        return found | {"loss": float(squared.mean() / self.count)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Regression(Task):
    """`delta`: of the Huber loss, in standard deviations; `quantile`: that the pinball loss learns."""

    name: ClassVar[str] = "regression"
    target: ClassVar[Kind] = "values"
    metric: ClassVar[Metric] = Metric(name="rmse", maximise=False, share=False)
    others: ClassVar[tuple[str, ...]] = ("mae", "r2")
    criterion: ClassVar[str] = "moonfed.export.criteria.regression:ValueCriterion"

    loss: Literal["squared-error", "huber", "absolute-error", "pinball"] = "squared-error"
    delta: float = 1.0
    quantile: float = 0.5

    def __post_init__(self) -> None:
        require_positive("delta", self.delta)
        require(0 < self.quantile < 1, "quantile", self.quantile, "a number above 0 and below 1")

    def scorer(self, target: TargetSpec) -> Scorer:
        """Return an empty scorer."""
        return ValueScorer(len(target.names))
