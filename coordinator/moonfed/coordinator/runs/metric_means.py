"""Weighted means of the metrics that a round's devices reported."""

from __future__ import annotations

import math
from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from moonfed.coordinator.records import DeviceReport
from moonfed.coordinator.updates.validation import HOLDOUT_SAMPLES

OF_HOLDOUTS = "holdout_"


def train_metrics(reports: Sequence[DeviceReport], evaluated: AbstractSet[str]) -> dict[str, float]:
    """Return the means of the training metrics, weighted by samples; the loss as `train_loss`.

    Names of evaluations' metrics are left out, among them `evaluated`: a device could claim to have reached them.
    """
    reported_names = {name for report in reports for name in report.metrics}
    found = {}
    for name in sorted(filter(lambda name: _is_of_training(name, evaluated), reported_names)):
        reported = [(report.samples, report.metrics[name]) for report in reports if name in report.metrics]
        if (mean := _weighted_mean(reported)) is not None:
            found["train_loss" if name == "loss" else name] = mean
    return found


def _is_of_training(name: str, evaluated: AbstractSet[str]) -> bool:
    return "@" not in name and not name.startswith((OF_HOLDOUTS, "accuracy")) and name not in {*evaluated, "train_loss"}


def holdout_metrics(reports: Sequence[DeviceReport]) -> dict[str, float]:
    """Return the means of the `holdout_…` metrics, weighted by `holdout_samples`, which is summed."""
    reported = [report.metrics for report in reports if report.metrics.get(HOLDOUT_SAMPLES, 0) > 0]
    names = {
        name for metrics in reported for name in metrics if name.startswith(OF_HOLDOUTS) and name != HOLDOUT_SAMPLES
    }
    found = {HOLDOUT_SAMPLES: sum(metrics[HOLDOUT_SAMPLES] for metrics in reported)} if reported else {}
    for name in sorted(names):
        mean = _weighted_mean([(metrics[HOLDOUT_SAMPLES], metrics[name]) for metrics in reported if name in metrics])
        found |= {} if mean is None else {name: mean}
    return found


def _weighted_mean(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Return the mean; None if there is none, or if it is not finite."""
    weight = sum(weight for weight, _ in pairs)
    mean = sum(weight * value for weight, value in pairs) / weight if weight > 0 else math.nan
    return mean if math.isfinite(mean) else None
