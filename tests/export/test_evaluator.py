"""The commands `evaluate` and `onnx` against a Control service on loopback."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pytest
import torch
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

from moonfed.blobs.store import BlobRef, ref_of_file
from moonfed.blobs.tensors import Vector
from moonfed.bundle.files import Bundle
from moonfed.bundle.manifest import PLAN_FILE
from moonfed.control.held_out_score import HeldOutScore
from moonfed.data.data_set import DataSet
from moonfed.data.npz import NpzSource
from moonfed.errors import InvalidInput, NotFound, ResourceExhausted, Unavailable
from moonfed.export.coordinator_client import CoordinatorClient, connect, global_model
from moonfed.export.evaluator import Evaluator, RoundScore, open_evaluator
from moonfed.export.parity import load_model
from moonfed.export.scoring import HeldOutData
from moonfed.plan.interface import load_plan
from moonfed.tasks.added_metric import AddedMetric
from moonfed.transport import client as transport
from moonfed.transport.operator_connection import Endpoint
from moonfed.v1 import control_pb2
from tests.export.conftest import another_model, initial_model
from tests.proto.control.test_held_out_score import SCORE
from tests.support.added_metrics import MissedError
from tests.support.control_service import Control
from tests.support.operator_records import score_message
from tests.support.refusals import refused

PATIENCE = 60.0
RECONNECTION = {"grpc.initial_reconnect_backoff_ms": 100, "grpc.max_reconnect_backoff_ms": 100}


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait hundredths of seconds for a coordinator instead of seconds."""
    monkeypatch.setattr(transport.Backoff.__init__, "__defaults__", (0.02, 0.2, 0))
    monkeypatch.setattr(transport, "CLIENT_OPTIONS", tuple((dict(transport.CLIENT_OPTIONS) | RECONNECTION).items()))


def expected_metrics(bundle: Bundle, model: Vector, data: DataSet, directory: Path) -> dict[str, float]:
    """Score with the plan, not with the graph."""
    (directory / PLAN_FILE).write_bytes(bundle.contents[PLAN_FILE])
    plan = load_plan(directory / PLAN_FILE, "cpu")
    load_model(plan, model, bundle.manifest)
    loss, correct = plan.evaluate(torch.from_numpy(data.inputs), torch.from_numpy(data.labels)).tolist()
    return {"accuracy": correct / len(data.labels), "loss": loss / len(data.labels)}


def evaluate(
    control: Control,
    data: DataSet,
    *,
    name: str = "test",
    added: Sequence[AddedMetric] = (),
    again: bool = False,
    follow: bool = False,
    on_score: Callable[[RoundScore], None] = lambda score: None,
) -> list[RoundScore]:
    scores: list[RoundScore] = []

    def told(score: RoundScore) -> None:
        scores.append(score)
        on_score(score)

    with connect(Endpoint(control.address, None)) as runs:
        evaluator = Evaluator(
            runs,
            "r",
            runs.manifest(runs.run("r")),
            HeldOutData(name=name, sha256="a" * 64, samples=data),
            added=added,
            again=again,
            on_score=told,
            on_unavailable=lambda problem: None,
        )
        if follow:
            evaluator.follow()
        else:
            evaluator.catch_up()
    return scores


def test_every_model_without_a_score_is_scored_including_the_initial_weights(
    control: Control, bundle: Bundle, data: DataSet, tmp_path: Path
) -> None:
    models = [another_model(bundle.manifest, seed) for seed in (1, 2)]
    control.commit(models[0])
    control.rounds[0].metrics["train_loss"] = 0.5  # the coordinator's own, not an evaluator's
    control.abandon()
    done = control_pb2.Round(run="r", round=2, status="committed", attempt=2, model=control.run.model)
    control.rounds.append(done)
    control.scores[2, "test"] = score_message(replace(SCORE, test_set="test"))
    scores = evaluate(control, data)
    assert [score.round for score in scores] == [0, 1]
    assert dict(control.run.initial_metrics) == pytest.approx(
        expected_metrics(bundle, initial_model(bundle, tmp_path), data, tmp_path), rel=1e-5
    )
    found = dict(control.rounds[0].metrics)
    assert found == pytest.approx({**expected_metrics(bundle, models[0], data, tmp_path), "train_loss": 0.5}, rel=1e-5)
    assert evaluate(control, data) == []


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy(MissedError):
    name: ClassVar[str] = "accuracy"


def test_a_packages_metric_is_recorded_with_the_tasks_and_asked_of_models_that_lack_it(
    control: Control, data: DataSet
) -> None:
    assert len(evaluate(control, data)) == 1
    (again,) = evaluate(control, data, added=[MissedError()])
    assert again.score.metrics["missed_error"] == pytest.approx(1 - again.score.score)
    assert control.run.initial_metrics["missed_error"] == again.score.metrics["missed_error"]
    assert evaluate(control, data, added=[MissedError()]) == evaluate(control, data) == []
    with refused(InvalidInput, "metric", "accuracy"):
        evaluate(control, data, added=[Accuracy()], again=True)


def test_a_run_with_its_own_initial_weights_is_scored_from_those(
    control: Control, bundle: Bundle, data: DataSet, tmp_path: Path
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
    control: Control, bundle: Bundle, data: DataSet
) -> None:
    told: queue.SimpleQueue[RoundScore] = queue.SimpleQueue()
    thread = threading.Thread(target=lambda: evaluate(control, data, follow=True, on_score=told.put))
    thread.start()
    control.watched.get(timeout=PATIENCE)
    assert told.get(timeout=PATIENCE).round == 0
    control.run.status = "paused"  # which lets the open round finish
    control.commit(another_model(bundle.manifest, 1))
    assert told.get(timeout=PATIENCE).round == 1  # with its receipt, which a stop could cut off
    control.run.status = "running"
    control.stop()
    control.commit(another_model(bundle.manifest, 2))  # nobody watches
    control.serve()
    assert told.get(timeout=PATIENCE).round == 2
    control.commit(another_model(bundle.manifest, 3))
    control.end()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert told.get(timeout=PATIENCE).round == 3
    assert told.empty()
    assert [control.recorded.get(timeout=PATIENCE)[0] for _ in range(4)] == [0, 1, 2, 3]


def test_a_score_whose_receipt_was_lost_is_reported_once(
    control: Control, bundle: Bundle, data: DataSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    record, cut = CoordinatorClient.record_score, [0, 1]

    def cut_receipt(self: CoordinatorClient, run: str, round_number: int, score: HeldOutScore) -> None:
        record(self, run, round_number, score)
        if round_number in cut:
            cut.remove(round_number)
            raise Unavailable("the line broke")

    monkeypatch.setattr(CoordinatorClient, "record_score", cut_receipt)
    for seed in (1, 2):
        control.commit(another_model(bundle.manifest, seed))
    control.end()
    assert [score.round for score in evaluate(control, data, follow=True)] == [0, 1, 2]
    assert control.recorded.qsize() == 3


def test_a_following_evaluator_waits_for_the_coordinator_to_start(
    control: Control, bundle: Bundle, data_file: Path
) -> None:
    control.stop()
    control.end()
    noticed, scores = threading.Event(), list[RoundScore]()

    def follow() -> None:
        with connect(Endpoint(control.address, None)) as runs:
            waiting = open_evaluator(
                runs,
                "r",
                NpzSource(data_file),
                on_score=scores.append,
                on_unavailable=lambda problem: noticed.set(),
                wait=True,
            )
            waiting.follow()

    thread = threading.Thread(target=follow)
    thread.start()
    assert noticed.wait(PATIENCE)
    control.serve()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert [score.round for score in scores] == [0]


def test_a_watcher_that_was_too_slow_reconnects(control: Control, bundle: Bundle, data: DataSet) -> None:
    control.cut_off = [Unavailable("this watcher fell behind")]
    control.end()
    assert [score.round for score in evaluate(control, data, follow=True)] == [0]


def test_a_watcher_that_receives_too_much_stops(control: Control, bundle: Bundle, data: DataSet) -> None:
    control.cut_off = [ResourceExhausted("Received message larger than max")]
    with pytest.raises(ResourceExhausted, match="larger than max"):
        evaluate(control, data, follow=True)


def test_following_an_ended_run_scores_the_remaining_models(control: Control, bundle: Bundle, data: DataSet) -> None:
    control.commit(another_model(bundle.manifest, 1))
    control.end()
    assert [score.round for score in evaluate(control, data, follow=True)] == [0, 1]


def test_an_empty_test_set_is_rejected(control: Control, bundle: Bundle, tmp_path: Path) -> None:
    empty = tmp_path / "empty.npz"
    np.savez(empty, inputs=np.zeros((0, *bundle.manifest.input.shape), np.float32), labels=np.zeros(0, int))
    with (
        connect(Endpoint(control.address, None)) as runs,
        refused(InvalidInput, "samples"),
    ):
        open_evaluator(runs, "r", NpzSource(empty), on_score=print, on_unavailable=print, wait=False)


def test_models_deleted_by_the_coordinator_are_skipped(control: Control, bundle: Bundle, data: DataSet) -> None:
    for seed in range(4):
        control.commit(another_model(bundle.manifest, seed))
    control.rounds[1].ClearField("model")  # as the coordinator lists it once it was deleted
    assert [score.round for score in evaluate(control, data)] == [0, 1, 3, 4]
    with connect(Endpoint(control.address, None)) as runs:
        run, rounds = runs.run("r"), runs.rounds("r")
    with refused(NotFound, "round", 2):
        global_model(run, rounds, 2)
    with refused(NotFound, "run"):
        global_model(run, rounds, 9)


@pytest.mark.parametrize("listed", [False, True])
def test_a_model_deleted_before_it_is_fetched_is_skipped_unless_it_is_still_listed(
    control: Control, bundle: Bundle, data: DataSet, monkeypatch: pytest.MonkeyPatch, *, listed: bool
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


def test_sets_are_scored_next_to_each_other_and_again_on_request(
    control: Control, bundle: Bundle, data: DataSet
) -> None:
    control.commit(another_model(bundle.manifest, 1))
    half = data.take(np.arange(0, len(data), 2))
    assert [score.round for score in evaluate(control, data)] == [0, 1]
    assert [score.round for score in evaluate(control, half, name="night")] == [0, 1]
    assert sorted(control.scores) == [(0, "night"), (0, "test"), (1, "night"), (1, "test")]
    metrics = dict(control.rounds[0].metrics)
    assert sorted(metrics) == ["accuracy", "accuracy@night", "loss", "loss@night"]
    assert control.scores[1, "night"].samples == len(half)
    assert evaluate(control, half, name="night") == []
    assert [score.round for score in evaluate(control, half, again=True)] == [0, 1]
    assert dict(control.rounds[0].metrics)["loss"] == metrics["loss@night"]
    control.end()
    assert [score.round for score in evaluate(control, data, again=True, follow=True)] == [0, 1]  # each once


def test_a_score_holds_what_scikit_learn_computes(
    control: Control, bundle: Bundle, data: DataSet, tmp_path: Path
) -> None:
    model = another_model(bundle.manifest, 1)
    control.commit(model)
    found = evaluate(control, data)[1].score
    (tmp_path / PLAN_FILE).write_bytes(bundle.contents[PLAN_FILE])
    plan = load_plan(tmp_path / PLAN_FILE, "cpu")
    load_model(plan, model, bundle.manifest)
    probabilities = plan.predict(torch.from_numpy(data.inputs)).detach().numpy().astype(np.float64)
    predicted, classes = probabilities.argmax(axis=1), range(len(bundle.manifest.classes))
    matrix = confusion_matrix(data.labels, predicted, labels=classes)
    assert [list(row) for row in found.rows()] == matrix.tolist()
    precision, recall, _, support = precision_recall_fscore_support(
        data.labels, predicted, labels=classes, zero_division=np.nan
    )
    by_class = list(found.by_class())
    unknown = float("nan")
    assert [entry.name for entry in by_class] == list(bundle.manifest.classes)
    assert [unknown if entry.precision is None else entry.precision for entry in by_class] == pytest.approx(
        list(precision), nan_ok=True
    )
    assert [unknown if entry.recall is None else entry.recall for entry in by_class] == pytest.approx(
        list(recall), nan_ok=True
    )
    assert [entry.support for entry in by_class] == list(support)
    assert found.calibration_error == pytest.approx(calibration_error(probabilities, data.labels), rel=1e-4)
    assert (found.samples, found.calibration_bins) == (len(data), 15)


def calibration_error(probabilities: npt.NDArray[np.float64], labels: npt.NDArray[np.int64]) -> float:
    """The gap between accuracy and mean confidence in each of 15 bins, weighted by its share of the samples."""
    confidence, right = probabilities.max(axis=1), probabilities.argmax(axis=1) == labels
    total = 0.0
    for number in range(15):
        inside = (confidence > number / 15) & (confidence <= (number + 1) / 15)
        if inside.any():
            total += inside.mean() * abs(right[inside].mean() - confidence[inside].mean())
    return total


@pytest.mark.parametrize("scored", [False, True])
def test_a_file_that_does_not_fit_is_an_error_even_if_every_round_has_a_score(
    control: Control, bundle: Bundle, data: DataSet, data_file: Path, tmp_path: Path, *, scored: bool
) -> None:
    control.commit(another_model(bundle.manifest, 1))
    if scored:
        evaluate(control, data)
    wrong = {
        "shape": {"inputs": np.zeros((4, 3), np.float32), "labels": np.zeros(4, int)},
        "labels": {"inputs": data.inputs[:4], "labels": np.full(4, 99)},
        "empty": {"inputs": data.inputs[:0], "labels": data.labels[:0]},
    }
    source = NpzSource(data_file)
    with connect(Endpoint(control.address, None)) as runs:
        for name, arrays in wrong.items():
            np.savez(tmp_path / f"{name}.npz", allow_pickle=False, **arrays)
            with pytest.raises(InvalidInput):
                open_evaluator(
                    runs, "r", NpzSource(tmp_path / f"{name}.npz"), on_score=print, on_unavailable=print, wait=False
                )
        if scored:
            with refused(InvalidInput, "data of test set", "test"):
                open_evaluator(runs, "r", source, on_score=print, on_unavailable=print, wait=False)
            again = open_evaluator(
                runs, "r", source, again=True, on_score=lambda score: None, on_unavailable=print, wait=False
            )
            again.catch_up()
            assert control.scores[1, "test"].sha256 == ref_of_file(data_file).sha256
        with refused(InvalidInput, "test_set", "../x"):
            open_evaluator(runs, "r", source, test_set="../x", on_score=print, on_unavailable=print, wait=False)
