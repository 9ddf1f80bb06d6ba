"""Facts about a released model: its results by class, and its learning curve."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnxruntime
import pytest
from sklearn.metrics import precision_recall_fscore_support

from moonfed.data.data_set import DataSet
from moonfed.data.npz import NpzSource
from moonfed.errors import InvalidInput
from moonfed.release.bill_of_materials import bill_of_materials
from moonfed.release.model_card import model_card
from moonfed.release.model_facts import EvaluationResults, ModelFacts
from moonfed.release.model_file import CheckedModel
from moonfed.release.publish import Candidate, gather_facts
from tests.support.markdown import rows
from tests.support.refusals import refused
from tests.support.trained_model import CLASSES, Trained


def results_of(facts: ModelFacts) -> EvaluationResults:
    assert facts.results
    return facts.results


def answers(graph: bytes, data: DataSet) -> npt.NDArray[np.int64]:
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    (probabilities,) = session.run(["probabilities"], {"inputs": data.inputs})
    found: npt.NDArray[np.int64] = np.asarray(probabilities).argmax(axis=1)
    return found


def loss_of(graph: bytes, data: DataSet) -> float:
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    probabilities = np.asarray(session.run(["probabilities"], {"inputs": data.inputs})[0], dtype=np.float64)
    return -float(np.log(probabilities[np.arange(len(data)), data.labels]).mean())


def test_class_results_match_scikit_learn(facts: ModelFacts, checked: CheckedModel, trained: Trained) -> None:
    found = answers(checked.graph, trained.test)
    precision, recall, _, support = precision_recall_fscore_support(trained.test.labels, found, labels=range(10))
    results = results_of(facts)
    assert [entry.name for entry in results.classes] == list(CLASSES)
    assert [entry.precision for entry in results.classes] == pytest.approx(list(precision))
    assert [entry.recall for entry in results.classes] == pytest.approx(list(recall))
    assert [entry.support for entry in results.classes] == list(support)
    assert results.score.value == pytest.approx((found == trained.test.labels).mean())
    assert results.data_sha256 == hashlib.sha256(trained.test_file.read_bytes()).hexdigest()
    shown = rows(model_card(facts))
    for name, p, r, n in zip(CLASSES, precision, recall, support, strict=True):
        assert [name, f"{p:.4f}", f"{r:.4f}", str(n)] in shown
    right = f"accuracy {(found == trained.test.labels).mean():.4f}, loss {loss_of(checked.graph, trained.test):.4f}."
    digest = hashlib.sha256(trained.test_file.read_bytes()).hexdigest()
    assert f"On {len(trained.test)} samples (sha256 `{digest}`): {right}" in model_card(facts)
    metrics = json.loads(bill_of_materials(facts))["metadata"]["component"]["modelCard"]["quantitativeAnalysis"]
    told = {(entry["type"], entry.get("slice")): entry["value"] for entry in metrics["performanceMetrics"]}
    assert told["loss", None] == f"{results.score.metrics['loss']:.6f}"
    assert [told["precision", name] for name in CLASSES] == [f"{value:.6f}" for value in precision]
    assert [told["recall", name] for name in CLASSES] == [f"{value:.6f}" for value in recall]
    assert len(told) == 2 + 2 * len(CLASSES)


def test_an_absent_class_that_is_never_predicted_has_no_results(
    checked: CheckedModel, trained: Trained, tmp_path: Path
) -> None:
    found = answers(checked.graph, trained.test)
    only = (trained.test.labels == 0) & (found == 0)
    np.savez(tmp_path / "zeros.npz", inputs=trained.test.inputs[only], labels=trained.test.labels[only])
    candidate = Candidate(graph=checked.graph, where="model.onnx", round=1)
    classes = results_of(gather_facts("digits", 1, candidate, NpzSource(tmp_path / "zeros.npz"))).classes
    assert (classes[0].precision, classes[0].recall, classes[0].support) == (1.0, 1.0, only.sum())
    assert all((entry.precision, entry.recall, entry.support) == (None, None, 0) for entry in classes[1:])


def test_unlabelled_data_give_no_results_and_empty_data_are_rejected(
    checked: CheckedModel, trained: Trained, tmp_path: Path
) -> None:
    candidate = Candidate(graph=checked.graph, where="model.onnx", round=1)
    facts = gather_facts("digits", 1, candidate, NpzSource(trained.calibration_file))
    assert facts.results is None
    assert "quality has not been" in model_card(facts)
    np.savez(tmp_path / "none.npz", inputs=trained.test.inputs[:0], labels=trained.test.labels[:0])
    with refused(InvalidInput, "samples"):
        gather_facts("digits", 1, candidate, NpzSource(tmp_path / "none.npz"))
