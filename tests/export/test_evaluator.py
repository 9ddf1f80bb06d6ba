"""The commands `evaluate` and `onnx` against a Control service on loopback."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from moonfed import transport
from moonfed.blobs import BlobRef
from moonfed.bundle import Bundle
from moonfed.errors import InvalidInput, NotFound, ResourceExhausted, Unavailable
from moonfed.export.coordinator_client import CoordinatorClient, connect, global_model
from moonfed.export.evaluator import Evaluator, RoundScore, open_evaluator
from moonfed.export.parity import load_model
from moonfed.manifest import PLAN_FILE
from moonfed.plan import load_plan
from moonfed.samples import RawSamples
from moonfed.tensors import Vector
from moonfed.v1 import control_pb2
from tests.export.conftest import NOWHERE, another_model, initial_model
from tests.support.control_service import Control

PATIENCE = 60.0
RECONNECTION = {"grpc.initial_reconnect_backoff_ms": 100, "grpc.max_reconnect_backoff_ms": 100}


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait hundredths of seconds for a coordinator instead of seconds."""
    monkeypatch.setattr(transport.Backoff.__init__, "__defaults__", (0.02, 0.2, 0))
    monkeypatch.setattr(transport, "CLIENT_OPTIONS", tuple((dict(transport.CLIENT_OPTIONS) | RECONNECTION).items()))


def expected_metrics(bundle: Bundle, model: Vector, data: RawSamples, directory: Path) -> dict[str, float]:
    """Score with the plan, not with the graph."""
    (directory / PLAN_FILE).write_bytes(bundle.contents[PLAN_FILE])
    plan = load_plan(directory / PLAN_FILE, "cpu")
    load_model(plan, model, bundle.manifest)
    loss, correct = plan.evaluate(torch.from_numpy(data.inputs), torch.from_numpy(data.labels)).tolist()
    return {"accuracy": correct / len(data.labels), "loss": loss / len(data.labels)}


def evaluate(control: Control, data: RawSamples, *, follow: bool = False) -> list[RoundScore]:
    scores: list[RoundScore] = []
    with connect(NOWHERE, insecure=True, address=control.address) as runs:
        manifest = runs.manifest(runs.get("r"))
        evaluator = Evaluator(runs, "r", manifest, data, on_score=scores.append, on_unavailable=lambda problem: None)
        if follow:
            evaluator.follow()
        else:
            evaluator.catch_up()
    return scores


def test_every_model_without_metrics_is_scored_including_the_initial_weights(
    control: Control, bundle: Bundle, data: RawSamples, tmp_path: Path
) -> None:
    models = [another_model(bundle.manifest, seed) for seed in (1, 2)]
    control.commit(models[0])
    control.rounds[0].metrics["train_loss"] = 0.5  # the coordinator's own, not an evaluator's
    control.abandon()
    done = control_pb2.Round(round=2, status=control_pb2.ROUND_STATUS_COMMITTED, attempt=2, model=control.run.model)
    done.metrics["accuracy"] = 0.9
    control.rounds.append(done)
    scores = evaluate(control, data)
    assert [score.round for score in scores] == [0, 1]
    assert dict(control.run.initial_metrics) == pytest.approx(
        expected_metrics(bundle, initial_model(bundle, tmp_path), data, tmp_path), rel=1e-5
    )
    found = dict(control.rounds[0].metrics)
    assert found == pytest.approx({**expected_metrics(bundle, models[0], data, tmp_path), "train_loss": 0.5}, rel=1e-5)
    assert evaluate(control, data) == []


def test_a_run_with_its_own_initial_weights_is_scored_from_those(
    control: Control, bundle: Bundle, data: RawSamples, tmp_path: Path
) -> None:
    start = another_model(bundle.manifest, 7)
    ref = control.put_model(start)
    control.run.initial_model.sha256, control.run.initial_model.size = ref.sha256, ref.size
    control.commit(another_model(bundle.manifest, 8))
    evaluate(control, data)
    expected = expected_metrics(bundle, start, data, tmp_path)
    assert dict(control.run.initial_metrics) == pytest.approx(expected, rel=1e-5)
    assert expected != pytest.approx(
        expected_metrics(bundle, initial_model(bundle, tmp_path), data, tmp_path), rel=1e-3
    )


def test_following_survives_a_coordinator_restart_and_ends_with_the_run(
    control: Control, bundle: Bundle, data: RawSamples
) -> None:
    scores: list[RoundScore] = []
    thread = threading.Thread(target=lambda: scores.extend(evaluate(control, data, follow=True)))
    thread.start()
    control.watched.get(timeout=PATIENCE)
    assert control.recorded.get(timeout=PATIENCE)[0] == 0
    control.commit(another_model(bundle.manifest, 1))
    assert control.recorded.get(timeout=PATIENCE)[0] == 1
    control.stop()
    control.commit(another_model(bundle.manifest, 2))  # nobody watches
    control.serve()
    recorded = control.recorded.get(timeout=PATIENCE)[0]
    if recorded == 1:  # the stop cut its receipt, so it is told once more
        recorded = control.recorded.get(timeout=PATIENCE)[0]
    assert recorded == 2
    control.commit(another_model(bundle.manifest, 3))
    control.end()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert [score.round for score in scores] == [0, 1, 2, 3]


def test_a_following_evaluator_waits_for_the_coordinator_to_start(
    control: Control, bundle: Bundle, data_file: Path
) -> None:
    control.stop()
    control.end()
    noticed, scores = threading.Event(), list[RoundScore]()

    def follow() -> None:
        with connect(NOWHERE, insecure=True, address=control.address) as runs:
            waiting = open_evaluator(
                runs, "r", data_file, on_score=scores.append, on_unavailable=lambda problem: noticed.set(), wait=True
            )
            waiting.follow()

    thread = threading.Thread(target=follow)
    thread.start()
    assert noticed.wait(PATIENCE)
    control.serve()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert [score.round for score in scores] == [0]


def test_a_watcher_that_was_too_slow_reconnects(control: Control, bundle: Bundle, data: RawSamples) -> None:
    control.cut_off = [Unavailable("this watcher fell behind; watch again")]
    control.end()
    assert [score.round for score in evaluate(control, data, follow=True)] == [0]


def test_a_watcher_that_receives_too_much_stops(control: Control, bundle: Bundle, data: RawSamples) -> None:
    control.cut_off = [ResourceExhausted("Received message larger than max")]
    with pytest.raises(ResourceExhausted, match="larger than max"):
        evaluate(control, data, follow=True)


def test_following_an_ended_run_scores_the_remaining_models(control: Control, bundle: Bundle, data: RawSamples) -> None:
    control.commit(another_model(bundle.manifest, 1))
    control.end()
    assert [score.round for score in evaluate(control, data, follow=True)] == [0, 1]


def test_an_empty_test_set_is_rejected(control: Control, bundle: Bundle, tmp_path: Path) -> None:
    empty = tmp_path / "empty.npz"
    np.savez(empty, inputs=np.zeros((0, *bundle.manifest.input.shape), np.float32), labels=np.zeros(0, int))
    with (
        connect(NOWHERE, insecure=True, address=control.address) as runs,
        pytest.raises(InvalidInput, match="holds no samples; at least one is needed"),
    ):
        open_evaluator(runs, "r", empty, on_score=print, on_unavailable=print, wait=False)


def test_models_deleted_by_the_coordinator_are_skipped(control: Control, bundle: Bundle, data: RawSamples) -> None:
    for seed in range(4):
        control.commit(another_model(bundle.manifest, seed))
    control.rounds[1].ClearField("model")  # as the coordinator lists it once it was deleted
    assert [score.round for score in evaluate(control, data)] == [0, 1, 3, 4]
    with connect(NOWHERE, insecure=True, address=control.address) as runs:
        run, rounds = runs.get("r"), runs.rounds("r")
        manifest = runs.manifest(run)
    with pytest.raises(NotFound, match="the global model of round 2 of run 'r' was deleted; the newest are 0, 1, 3, 4"):
        global_model(run, rounds, manifest, 2)
    with pytest.raises(NotFound, match="no global model of round 9; it has 0 to 4"):
        global_model(run, rounds, manifest, 9)


@pytest.mark.parametrize("listed", [False, True])
def test_a_model_deleted_before_it_is_fetched_is_skipped_unless_it_is_still_listed(
    control: Control, bundle: Bundle, data: RawSamples, monkeypatch: pytest.MonkeyPatch, *, listed: bool
) -> None:
    control.commit(another_model(bundle.manifest, 1))
    control.commit(another_model(bundle.manifest, 2))
    fetch = CoordinatorClient.fetch

    def deleted(self: CoordinatorClient, ref: BlobRef) -> Path:
        if ref.sha256 == control.rounds[0].model.sha256:
            if not listed:
                control.rounds[0].ClearField("model")
            raise NotFound("there is no such blob")
        return fetch(self, ref)

    monkeypatch.setattr(CoordinatorClient, "fetch", deleted)
    if listed:
        with pytest.raises(NotFound, match="there is no such blob"):
            evaluate(control, data)
    else:
        assert [score.round for score in evaluate(control, data)] == [0, 2]
