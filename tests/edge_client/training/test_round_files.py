"""Results that a plan may return after a round, and those that are stored."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from moonfed.blobs.tensors import TensorSpec
from moonfed.bundle.manifest import Manifest
from moonfed.edge_client.job import Job
from moonfed.edge_client.state.round_store import RunState, StoredRound
from moonfed.edge_client.training.local_training import Samples
from moonfed.edge_client.training.round_files import train_job
from moonfed.errors import TrainingFailed
from tests.edge_client.conftest import TASK, Bundle
from tests.support.recording import RecordingPlan
from tests.support.refusals import refused

SPEC = TensorSpec("w", (2,), "parameter")
NAN = float("nan")


@pytest.fixture
def manifest(bundle: Bundle) -> Manifest:
    """Manifest of a method whose devices send a change and keep a state."""
    return replace(bundle.manifest, uplink={"variate_change": (SPEC,)}, device_state={"device_variate": (SPEC,)})


@pytest.fixture
def plan(manifest: Manifest) -> RecordingPlan:
    made = RecordingPlan()
    made.results = {
        "model": [torch.zeros(spec.shape) for spec in manifest.tensors],
        "variate_change": [torch.ones(2)],
        "device_variate": [torch.full((2,), 3.0)],
    }
    return made


@pytest.fixture
def train(manifest: Manifest, new_job: Callable[..., Job], tmp_path: Path) -> Callable[[RecordingPlan], StoredRound]:
    state = RunState(tmp_path / "runs", "tested", manifest=TASK, seed=1)
    data = Samples(inputs=torch.zeros(8, 6), targets=torch.zeros(8, dtype=torch.int64))

    def train(plan: RecordingPlan) -> StoredRound:
        return train_job(plan, data, None, state, new_job(), manifest, "cam-1")

    return train


Train = Callable[[RecordingPlan], StoredRound]


def test_the_results_of_a_round_are_stored_by_role(plan: RecordingPlan, train: Train) -> None:
    stored = train(plan)
    assert sorted(stored.update.blobs) == ["model", "variate_change"]
    assert sorted(stored.update.kept) == ["device_variate"]
    assert stored.file("device_variate").read_bytes().endswith(bytes(torch.full((2,), 3.0).numpy().data))
    assert stored.file("variate_change").read_bytes().endswith(bytes(torch.ones(2).numpy().data))


def test_the_plan_sees_the_jobs_training_loop(
    manifest: Manifest, plan: RecordingPlan, new_job: Callable[..., Job], tmp_path: Path
) -> None:
    plan.draws = 2
    state = RunState(tmp_path / "runs", "tested", manifest=TASK, seed=1)
    data = Samples(inputs=torch.arange(8.0).reshape(-1, 1), targets=torch.zeros(8, dtype=torch.int64))
    job = new_job(epochs=5, batch_size=4, views=2, max_steps=7)
    stored = train_job(plan, data, None, state, job, manifest, "cam-1")
    assert [len(batch) for batch in plan.batches] == [4] * 7
    assert stored.update.steps == 7
    first, second, third = (plan.draws_by_sample(2 * epoch, 2) for epoch in range(3))
    assert first == third
    assert first != second, "the epochs take two views in turn"


@pytest.mark.parametrize(
    ("role", "result", "named"),
    [
        ("variate_change", [torch.tensor([1.0, NAN])], ("tensor", "w")),
        ("device_variate", [torch.tensor([float("inf"), 1.0])], ("tensor", "w")),
        ("variate_change", [torch.ones(3)], ("shapes", "variate_change")),
        ("device_variate", [], ("shapes", "device_variate")),
        ("class_means", [torch.ones(2)], ("results", ["class_means", "device_variate", "model", "variate_change"])),
    ],
)
def test_results_that_differ_from_the_manifest_are_named(
    role: str, result: list[torch.Tensor], named: tuple[str, object], plan: RecordingPlan, train: Train, tmp_path: Path
) -> None:
    plan.results[role] = result
    with refused(TrainingFailed, *named):
        train(plan)
    assert not (tmp_path / "runs").exists()


def test_a_role_that_the_plan_does_not_leave_is_missed(plan: RecordingPlan, train: Train) -> None:
    del plan.results["device_variate"]
    with refused(TrainingFailed, "results"):
        train(plan)


def test_a_methods_metrics_are_reported_with_the_devices_own(
    plan: RecordingPlan, train: Train, caplog: pytest.LogCaptureFixture
) -> None:
    plan.measured = {"inexactness": 0.5, "ratio": NAN}
    with caplog.at_level(logging.WARNING):
        metrics = train(plan).update.metrics
    assert metrics == {"loss": 1.5, "inexactness": 0.5}  # of steps 1 and 2 in two epochs of one batch
    assert caplog.messages == ["the plan's metric 'ratio' is nan and is ignored"]


@pytest.mark.parametrize("name", ["loss", "holdout_accuracy", "holdout_other"])
def test_a_methods_metric_cannot_pass_for_the_devices_own(name: str, plan: RecordingPlan, train: Train) -> None:
    plan.measured = {name: 0.0}
    with refused(TrainingFailed, "metric", name):
        train(plan)
