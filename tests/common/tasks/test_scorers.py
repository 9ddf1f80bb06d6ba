"""The scorers of all tasks, against scikit-learn, in any batches, and where nothing is known."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from sklearn import metrics

from moonfed.bundle.target import TargetSpec, class_target
from moonfed.registry import Selection
from moonfed.tasks import TASKS
from moonfed.tasks.anomaly_detection import threshold

Array = npt.NDArray[np.generic]
BATCHES = (1, 7, 1000)
LABELS = TargetSpec(kind="labels", names=("a", "b", "c", "d"), shape=(4,))
VALUES = TargetSpec(kind="values", names=("a", "b", "c"), shape=(3,))
FORECAST = TargetSpec(kind="values", names=("a", "b", "c"), shape=(5, 3))
MASK = TargetSpec(kind="mask", names=("a", "b", "c", "d"), shape=(4, 5))
SCORES = TargetSpec(kind="none", shape=(0,))
NEXT = TargetSpec(kind="next", shape=(0,))
NONE = np.zeros((0, 0))


def score(
    task: str, target: TargetSpec, outputs: Array, targets: Array, inputs: Array = NONE, batch: int = 1000
) -> dict[str, float]:
    scorer = TASKS.build(Selection(task)).scorer(target)
    for start in range(0, len(outputs), batch):
        part = slice(start, start + batch)
        scorer.add(outputs[part], targets[part], inputs[part])
    return scorer.metrics()


def chances(generator: np.random.Generator, shape: tuple[int, ...], axis: int) -> Array:
    values = np.exp(2 * generator.normal(size=shape))
    found: Array = (values / values.sum(axis=axis, keepdims=True)).astype(np.float32)
    return found


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("empty", [False, True], ids=["all-classes", "an-empty-class"])
def test_classification(batch: int, empty: bool) -> None:
    generator = np.random.default_rng(1)
    outputs, labels = chances(generator, (60, 4), 1), generator.integers(0, 3 if empty else 4, 60)
    found = score("classification", class_target(4), outputs, labels, batch=batch)
    assert list(found) == ["accuracy", "loss"]
    assert found["accuracy"] == metrics.accuracy_score(labels, outputs.argmax(axis=1))
    assert found["loss"] == pytest.approx(metrics.log_loss(labels, outputs, labels=range(4)), rel=1e-5)


@pytest.mark.parametrize("batch", BATCHES)
def test_multilabel(batch: int) -> None:
    """One label never occurs and is never predicted; its F1 counts as 0, as scikit-learn's does."""
    generator = np.random.default_rng(2)
    outputs = generator.uniform(size=(50, 4)).astype(np.float32)
    targets = generator.integers(0, 2, (50, 4)).astype(np.uint8)
    outputs[:, 3], targets[:, 3] = 0.25, 0
    found = score("multilabel", LABELS, outputs, targets, batch=batch)
    for average in ("macro", "micro"):
        expected = metrics.f1_score(targets, outputs >= 0.5, average=average, zero_division=0)
        assert found[f"{average}_f1"] == pytest.approx(expected)
    assert found["loss"] == pytest.approx(np.mean([metrics.log_loss(t, o, labels=[0, 1]) for t, o in
                                                   zip(targets.T, outputs.T, strict=True)]), rel=1e-5)  # fmt: skip


def test_an_unknown_label_does_not_count() -> None:
    generator = np.random.default_rng(3)
    outputs = generator.uniform(size=(40, 4)).astype(np.float32)
    targets = generator.choice(np.array([0, 1, 255], np.uint8), (40, 4))
    found = score("multilabel", LABELS, outputs, targets)
    by_label = [
        metrics.f1_score(true[true != 255], chance[true != 255] >= 0.5)
        for true, chance in zip(targets.T, outputs.T, strict=True)
    ]
    assert found["macro_f1"] == pytest.approx(np.mean(by_label))
    known = targets != 255
    assert found["loss"] == pytest.approx(metrics.log_loss(targets[known], outputs[known]), rel=1e-5)


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("target", [VALUES, FORECAST], ids=["values", "forecast"])
def test_regression(batch: int, target: TargetSpec) -> None:
    """Values of different scales, one of them far from zero, as prices and years are."""
    generator, shape = np.random.default_rng(4), (60, *target.shape)
    targets = (generator.normal(size=shape) * (1, 100, 3) + (0, 0, 2e5)).astype(np.float32)
    outputs = (targets + generator.normal(size=shape) * (0.5, 20, 2)).astype(np.float32)
    found = score("regression", target, outputs, targets, batch=batch)
    true, predicted = (each.reshape(-1, 3).astype(np.float64) for each in (targets, outputs))
    squared = metrics.mean_squared_error(true, predicted)
    expected = {
        "rmse": np.sqrt(squared),
        "mae": metrics.mean_absolute_error(true, predicted),
        "r2": metrics.r2_score(true, predicted),
        "loss": squared,
    }
    assert found == pytest.approx(expected, rel=1e-9)
    assert list(found) == list(expected)


def test_a_value_that_never_varies_has_no_r2() -> None:
    targets = np.array([[1.0, 5.0, 2.0], [2.0, 5.0, 0.0], [4.0, 5.0, 1.0]], np.float32)
    outputs = targets + np.float32(0.5)
    found = score("regression", VALUES, outputs, targets, batch=2)
    assert found["r2"] == pytest.approx(metrics.r2_score(targets[:, [0, 2]], outputs[:, [0, 2]]))
    constant = score("regression", VALUES, outputs, np.full((3, 3), 5, np.float32), batch=2)
    assert list(constant) == ["rmse", "mae", "loss"]


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("ignored", [0.0, 0.4, 0.999], ids=["none-ignored", "some-ignored", "most-ignored"])
def test_segmentation(batch: int, ignored: float) -> None:
    """A class that neither occurs nor is predicted is in no mean."""
    generator = np.random.default_rng(5)
    outputs, targets = chances(generator, (30, 4, 4, 5), 1), generator.integers(0, 3, (30, 4, 5)).astype(np.uint8)
    outputs[:, 3] = 0
    targets[generator.uniform(size=targets.shape) < ignored] = 255
    targets[0, 0, 0] = 1
    found = score("segmentation", MASK, outputs, targets, batch=batch)
    known = targets != 255
    true, chance = targets[known], np.moveaxis(outputs, 1, -1)[known]
    predicted = chance.argmax(axis=1)
    present = sorted({*true.tolist(), *predicted.tolist()})
    assert 3 not in present
    expected = {
        "mean_iou": metrics.jaccard_score(true, predicted, labels=present, average="macro"),
        "dice": metrics.f1_score(true, predicted, labels=present, average="macro"),
        "pixel_accuracy": metrics.accuracy_score(true, predicted),
        "loss": -np.log(chance[np.arange(len(true)), true].astype(np.float64)).mean(),
    }
    assert found == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("batch", BATCHES)
def test_anomaly_detection(batch: int) -> None:
    """Many scores are equal; samples of which it is not known do not count."""
    generator = np.random.default_rng(6)
    outputs = generator.integers(0, 8, 80).astype(np.float32) / 4
    targets = generator.choice(np.array([0, 0, 1, 255], np.uint8), 80)
    found = score("anomaly-detection", SCORES, outputs, targets, batch=batch)
    known = targets != 255
    assert found["auroc"] == pytest.approx(metrics.roc_auc_score(targets[known], outputs[known]))
    assert found["reconstruction_error"] == found["loss"] == pytest.approx(outputs[targets == 0].mean())


@pytest.mark.parametrize(
    "targets",
    [np.zeros((6, 0), np.uint8), np.zeros(6, np.uint8), np.ones(6, np.uint8), np.full(6, 255, np.uint8)],
    ids=["unlabelled", "all-usual", "all-unusual", "all-unknown"],
)
def test_without_both_kinds_of_samples_there_is_no_auroc(targets: Array) -> None:
    outputs = np.arange(6, dtype=np.float32)
    assert score("anomaly-detection", SCORES, outputs, targets, batch=4) == {"reconstruction_error": 2.5, "loss": 2.5}


@pytest.mark.parametrize(
    ("anomalous", "expected"),
    [
        (np.zeros((200, 0), np.uint8), 197.01),
        (np.repeat(np.array([0, 1], np.uint8), 100), 98.01),
        (np.repeat(np.array([0, 255], np.uint8), 100), 98.01),
        (np.ones(200, np.uint8), 197.01),
    ],
    ids=["unlabelled", "labelled", "partly-known", "all-unusual"],
)
def test_one_usual_sample_of_a_hundred_is_above_the_threshold(anomalous: Array, expected: float) -> None:
    assert threshold(np.arange(200.0), anomalous) == pytest.approx(expected)


@pytest.mark.parametrize("batch", BATCHES)
def test_next_token(batch: int) -> None:
    generator = np.random.default_rng(7)
    tokens, outputs = generator.integers(0, 5, (20, 6)), chances(generator, (20, 6, 5), 2)
    tokens[3] = 0
    found = score("next-token", NEXT, outputs, np.zeros((20, 0), np.uint8), tokens, batch=batch)
    true, chance = tokens[:, 1:].ravel(), outputs[:, :-1].reshape(-1, 5)
    known = true != 0
    loss = metrics.log_loss(true[known], chance[known], labels=range(5))
    accuracy = metrics.accuracy_score(true[known], chance[known].argmax(axis=1))
    expected = {"perplexity": np.exp(loss), "token_accuracy": accuracy, "loss": loss}
    assert found == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    "empty",
    [
        pytest.param(
            lambda: score("multilabel", LABELS, np.full((3, 4), 0.5), np.full((3, 4), 255, np.uint8)), id="labels"
        ),
        pytest.param(
            lambda: score("segmentation", MASK, np.full((3, 4, 4, 5), 0.25), np.full((3, 4, 5), 255, np.uint8)),
            id="pixels",
        ),
        pytest.param(
            lambda: score("next-token", NEXT, np.full((3, 6, 5), 0.2), np.zeros((3, 0)), np.zeros((3, 6), np.int64)),
            id="padding",
        ),
    ],
)
def test_where_nothing_is_known_nothing_is_measured(empty: Callable[[], dict[str, float]]) -> None:
    assert empty() == {}
