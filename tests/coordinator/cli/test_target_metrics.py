"""Misspelt names of metrics are refused before a run waits for them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from moonfed.bundle.manifest import Manifest
from moonfed.coordinator.cli.target_metrics import unknown_metrics
from moonfed.errors import InvalidInput
from moonfed.registry import Selection
from moonfed.tasks import TASKS
from tests.support.coordinator import make_bundle
from tests.support.refusals import refused


@pytest.fixture
def manifest() -> Manifest:
    found = make_bundle().manifest
    return replace(found, task=Selection("regression"), metric=TASKS["regression"].metric)


@pytest.mark.parametrize("name", ["rsme", "RMSE", "rmse_@night", "holdout_rsme", "train-loss"])
def test_a_name_that_is_almost_one_of_the_runs_metrics_is_refused(manifest: Manifest, name: str) -> None:
    with refused(InvalidInput, "target", name):
        unknown_metrics(["mae", name], manifest)


def test_what_a_program_may_record_is_told(manifest: Manifest) -> None:
    assert unknown_metrics(["rmse", "r2@night", "loss", "holdout_rmse", "cost"], manifest) == ["cost"]


@pytest.mark.parametrize("name", ["holdout_rmse", "train_loss"])
def test_a_metric_that_devices_do_not_send_is_no_target_of_a_run_with_privacy(manifest: Manifest, name: str) -> None:
    assert unknown_metrics(["rmse", name], manifest) == []
    assert unknown_metrics(["rmse", "cost"], manifest, private=True) == ["cost"]
    with refused(InvalidInput, "target", name):
        unknown_metrics(["rmse", name], manifest, private=True)
