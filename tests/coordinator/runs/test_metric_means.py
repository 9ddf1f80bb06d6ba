"""Weighted means of devices' metrics."""

from __future__ import annotations

import pytest

from moonfed.coordinator.records import DeviceReport
from moonfed.coordinator.runs.metric_means import holdout_metrics, train_metrics
from tests.support.interrupted_run import FIRST

pytestmark = pytest.mark.slow
SCORED = {"rmse"}


def test_metrics_of_a_cohort() -> None:
    def report(samples: int, **metrics: float) -> DeviceReport:
        return DeviceReport(id=FIRST, device="a", outcome="accepted", samples=samples, metrics=metrics)

    assert train_metrics([report(1)], SCORED) == holdout_metrics([report(1)]) == {}
    messages = [
        report(30, loss=1.0, holdout_accuracy=0.5, holdout_samples=10.0),
        report(10, loss=3.0, holdout_accuracy=1.0, holdout_samples=30.0),
        report(99, holdout_accuracy=0.0, holdout_samples=0.0),
    ]
    assert train_metrics(messages, SCORED) == {"train_loss": 1.5}
    assert holdout_metrics(messages) == {"holdout_accuracy": 0.875, "holdout_samples": 40}
    measured = [report(30, inexactness=0.5), report(10, inexactness=0.9, other=7.0), report(99)]
    assert train_metrics(measured, SCORED) == {"inexactness": pytest.approx(0.6), "other": 7.0}
    forged = [
        report(1, loss=1.0, train_loss=99.0, accuracy=1.0, rmse=0.0, **{"accuracy@night": 1.0, "loss@night": 0.0})
    ]
    assert train_metrics(forged, SCORED) == {"train_loss": 1.0}
    huge = [report(1, loss=sign * 1.7e308, holdout_loss=1.7e308, holdout_samples=9.0) for sign in (1, 1, -1)]
    assert train_metrics(huge, SCORED) == {}
    assert holdout_metrics(huge) == {"holdout_samples": 27}
