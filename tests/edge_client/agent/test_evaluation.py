"""A device that scores models on its holdout: what it counts, when it declines, and what has precedence."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from moonfed.blobs.tensors import open_model
from moonfed.blobs.tensors import split as split_tensors
from moonfed.bundle.manifest import ACCURACY
from moonfed.bundle.target import class_target
from moonfed.data.npz import NpzSource
from moonfed.edge_client.agent.evaluation import Evaluations
from moonfed.edge_client.agent.inbox import Inbox
from moonfed.edge_client.agent.transfers import BlobTransfers
from moonfed.edge_client.data.split import split
from moonfed.edge_client.state.trust import pin
from moonfed.edge_client.training_window import TrainingWindow
from moonfed.edge_client.worker.messages import WorkerSettings
from moonfed.fleet.messages import read_evaluation
from moonfed.plan.interface import load_plan
from moonfed.transport.client import to_message
from moonfed.v1 import fleet_pb2
from tests.edge_client.conftest import CLASSES, FEATURES, Bundle, Device, evaluation_of, write_samples
from tests.support.device_coordinator import Coordinator
from tests.support.signatures import trust

pytestmark = pytest.mark.slow

HOLDOUT = "0.5"


def correct(bundle: Bundle, model: bytes, samples: Path, directory: Path) -> int:
    """The correct predictions of a model's probabilities on the samples that a device holds out."""
    held_out = split(NpzSource(samples).read(FEATURES, class_target(CLASSES)), float(HOLDOUT))[1]
    (directory / "plan.pt").write_bytes(bundle.plan)
    (directory / "model").write_bytes(model)
    plan = load_plan(directory / "plan.pt", "cpu")
    weights = split_tensors(np.array(open_model(directory / "model", bundle.manifest.tensors)), bundle.manifest.tensors)
    tensors = [torch.from_numpy(values) for values in weights.values()]
    plan.begin_round(tensors, [], {}, bundle.manifest.training.hyperparameters)
    with torch.no_grad():
        predicted = plan.predict(torch.from_numpy(held_out.inputs)).argmax(dim=1).numpy()
    return int((predicted == held_out.labels).sum())


def counts(answer: fleet_pb2.ReportEvaluationRequest) -> tuple[int, int, int | None]:
    assert answer.HasField("scores"), answer.declined
    found = answer.scores
    local = round(found.local_score * found.samples) if found.HasField("local_score") else None
    return found.samples, round(found.score * found.samples), local


def test_a_device_counts_for_the_global_model_and_its_own_before_and_after_the_runs_end(
    coordinator: Coordinator, device: Device, bundle: Bundle, samples: Path, tmp_path: Path
) -> None:
    bundle = bundle.trained(coordinator.blobs, epochs=30)
    device.start(samples, "--holdout", HOLDOUT)
    expected = correct(bundle, bundle.weights, samples, tmp_path)
    coordinator.assign(evaluation_of(bundle))
    first = coordinator.wait_for_evaluation()
    assert (first.device, first.run, first.round, first.number) == ("cam-1", "tested", 1, 1)
    assert first.model == evaluation_of(bundle).model.sha256
    assert counts(first) == (20, expected, None)
    coordinator.assign(bundle.assignment())
    own = correct(bundle, coordinator.wait_for_update()[1], samples, tmp_path)
    assert own != expected
    coordinator.assign(evaluation_of(bundle, 2))
    assert counts(coordinator.wait_for_evaluation(2)) == (20, expected, own)
    assert len(device.processes()) == 3, "the evaluation uses the processes that train"
    other_seed = evaluation_of(bundle, 3)
    other_seed.seed = 8  # another run of that name
    coordinator.assign(other_seed)
    assert counts(coordinator.wait_for_evaluation(3)) == (20, expected, None)
    coordinator.assign(fleet_pb2.RunEnded(run="tested"))
    device.wait_for_log("run tested has ended")
    assert not list((device.state / "runs").iterdir())
    coordinator.assign(evaluation_of(bundle, 4))
    assert counts(coordinator.wait_for_evaluation(4)) == (20, expected, own)
    assert not list((device.state / "models").glob("*/*"))
    assert not coordinator.declined


def test_a_device_without_enough_held_out_samples_declines_before_it_computes(
    coordinator: Coordinator, device: Device, bundle: Bundle, tmp_path: Path
) -> None:
    few = write_samples(tmp_path / "few.npz", 38)
    device.start(few, "--holdout", HOLDOUT)
    coordinator.assign(evaluation_of(bundle))
    answer = coordinator.wait_for_evaluation()
    assert answer.declined.endswith("fewer than 20 samples")
    assert len(device.processes()) == 2, "only the data were read"
    device.stop()
    device.start(few)
    assert coordinator.wait_for_evaluation(2).declined.endswith("no holdout")


def test_a_device_evaluates_only_bundles_that_it_trusts_and_models_that_fit(
    coordinator: Coordinator, device: Device, bundle: Bundle, samples: Path, tmp_path: Path
) -> None:
    device.start(samples, "--holdout", HOLDOUT)
    large = evaluation_of(bundle)
    large.model.CopyFrom(to_message(coordinator.blobs.put_bytes(bundle.weights + bytes(1 << 21))))
    coordinator.assign(large)
    assert "bytes; it must be" in coordinator.wait_for_evaluation().declined
    assert large.model.sha256 not in {sha256 for sha256, _ in coordinator.fetched}
    device.stop()
    pin(device.state, trust(9), forget=True)
    coordinator.assign(evaluation_of(bundle, 2))
    device.start(samples, "--holdout", HOLDOUT)
    assert "trust" in coordinator.wait_for_evaluation(2).declined
    coordinator.assign(evaluation_of(bundle, 3))
    device.wait_for_log("evaluation of global model 1: declined")


def test_a_round_has_precedence_and_the_evaluation_goes_on_afterwards(
    coordinator: Coordinator, device: Device, bundle: Bundle, samples: Path
) -> None:
    device.start(samples, "--holdout", HOLDOUT)
    coordinator.stuck = True
    coordinator.assign(evaluation_of(bundle))
    coordinator.wait_for(lambda: coordinator.asked_in_vain, "the evaluation's first file")
    coordinator.assign(bundle.assignment())
    device.wait_for_log("run tested, evaluation of global model 1: interrupted")
    coordinator.stuck = False
    coordinator._tell()
    coordinator.wait_for_evaluation()
    assert len(coordinator.updates) == 1
    assert counts(coordinator.evaluated[0])[2] is not None


def test_a_killed_device_answers_when_it_is_asked_again(
    coordinator: Coordinator, device: Device, bundle: Bundle, samples: Path
) -> None:
    device.start(samples, "--holdout", HOLDOUT)
    coordinator.stuck = True
    coordinator.assign(evaluation_of(bundle))
    coordinator.wait_for(lambda: coordinator.asked_in_vain, "the evaluation's first file")
    for process in device.processes():
        os.kill(process.pid, signal.SIGKILL)
    device.finish()
    coordinator.stuck = False
    coordinator._tell()
    device.start(samples, "--holdout", HOLDOUT)
    assert counts(coordinator.wait_for_evaluation())[0] == 20
    assert len(coordinator.evaluated) == 1


def test_nothing_is_answered_outside_the_training_window(bundle: Bundle, tmp_path: Path) -> None:
    """The device is asked again when it connects in its window."""
    start = datetime.now() + timedelta(hours=2)
    closed = TrainingWindow(start.time(), (start + timedelta(hours=1)).time())
    settings = WorkerSettings(state=str(tmp_path), device="cam-1", data="samples", accelerator="cpu", holdout=0.5)
    asked: list[Any] = []
    connection: Any = SimpleNamespace(report_evaluation=lambda *message: asked.append(message), fetch=asked.append)
    inbox, worker = Inbox(), SimpleNamespace(score=lambda *job: asked.append(job))
    transfers = BlobTransfers(connection, inbox, closed)
    inbox.put(task := read_evaluation(evaluation_of(bundle)))
    inbox.next_task(0)
    Evaluations(settings, connection, worker, transfers, inbox).answer(task)  # type: ignore[arg-type]
    assert asked == []
    assert inbox.next_task(0) is None


@pytest.mark.parametrize("models", [1, 2])
def test_the_training_processs_numbers_are_checked(models: int) -> None:
    from moonfed.edge_client.agent.worker_process import _holdout_scores
    from moonfed.errors import TrainingFailed

    good, unfit = [0.35, 0.4][:models], (1.1, -0.1, float("nan"), "0.35", True, 1)
    assert _holdout_scores({"scores": good}, 20, models, ACCURACY).score == 0.35
    for bad in ([], [*good, 1.0], *([value] * models for value in unfit), None, 0.35):
        with pytest.raises(TrainingFailed, match="invalid results"):
            _holdout_scores({"scores": bad}, 20, models, ACCURACY)
    error = replace(ACCURACY, name="rmse", share=False, maximise=False)
    assert _holdout_scores({"scores": [3e4] * models}, 20, models, error).score == 3e4
