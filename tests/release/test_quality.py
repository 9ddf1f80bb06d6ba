"""Results on a test set, against scikit-learn and plain sums."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from sklearn.metrics import precision_recall_fscore_support

from moonfed.bundle.target import NO_TARGET, TargetSpec
from moonfed.control.held_out_score import ClassScore
from moonfed.data.data_set import DataSet
from moonfed.export import scoring
from moonfed.export.scoring import ClassCounts, Predictor, Score
from moonfed.release.model_card import model_card
from moonfed.release.model_facts import EvaluationResults, ModelFacts
from moonfed.release.quality import result_table
from moonfed.tasks import TASKS
from tests.support.markdown import rows

Array = npt.NDArray[Any]
TAGS = TargetSpec(kind="labels", names=("cat", "dog", "cow"), shape=(3,))
CROPS = TargetSpec(kind="mask", names=("soil", "crop", "weed"), shape=(4, 5))
PRICES = TargetSpec(kind="values", names=("price", "area"), shape=(2,), units=("EUR", ""))


class Given(Predictor):
    """A predictor whose inputs are rows of given outputs."""

    def __init__(self, outputs: Array) -> None:
        self._outputs = outputs

    def predict(self, inputs: Array) -> npt.NDArray[np.float32]:
        rows: npt.NDArray[np.float32] = self._outputs[inputs[:, 0]]
        return rows


def samples(target: TargetSpec, targets: Array | None, count: int) -> DataSet:
    return DataSet(inputs=np.arange(count)[:, None], targets=targets, target=target)


def by_class(task: str, outputs: Array, found: DataSet) -> tuple[ClassScore, ...]:
    counts = ClassCounts(found.target)
    Given(outputs).score(found, task, counts.add)
    return counts.scores()


def figures(scores: tuple[ClassScore, ...]) -> list[list[float]]:
    return [[each.precision or 0.0, each.recall or 0.0, each.support] for each in scores]


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring, "BATCH", 7)


def test_labels_by_label() -> None:
    generator = np.random.default_rng(1)
    outputs, targets = generator.random((60, 3), np.float32), generator.choice(np.array([0, 1, 255], np.uint8), (60, 3))
    found = figures(by_class("multilabel", outputs, samples(TAGS, targets, 60)))
    for place, figures_ in enumerate(found):
        known = targets[:, place] != 255
        precision, recall, _, support = precision_recall_fscore_support(
            targets[known, place], outputs[known, place] >= 0.5, labels=[1], average=None
        )
        assert figures_ == pytest.approx([precision[0], recall[0], support[0]])


def test_masks_by_class() -> None:
    generator = np.random.default_rng(2)
    outputs = generator.random((20, 3, 4, 5), np.float32)
    targets = generator.choice(np.array([0, 1, 255], np.uint8), (20, 4, 5))
    found = by_class("segmentation", outputs, samples(CROPS, targets, 20))
    known = targets != 255
    precision, recall, _, support = precision_recall_fscore_support(
        targets[known], outputs.argmax(axis=1)[known], labels=range(3), zero_division=0.0
    )
    assert figures(found) == [pytest.approx(list(row)) for row in zip(precision, recall, support, strict=True)]
    assert found[2].recall is None


def test_predicted_values_are_compared_with_true_ones_in_bins() -> None:
    generator = np.random.default_rng(3)
    true = generator.normal(0, 1, (100, 2)).astype(np.float32)
    found = result_table(true + np.array([0.5, 0], np.float32), samples(PRICES, true, 100))
    assert found
    prices = [row for row in found.rows if row[0] == "price (EUR)"]
    assert [int(row[3]) for row in prices] == [10] * 10
    assert [float(row[5]) - float(row[4]) for row in prices] == pytest.approx([0.5] * 10, abs=2e-4)
    assert {row[6] for row in prices} == {"0.5000"}
    order = np.sort(true[:, 0]).reshape(10, 10)
    assert [float(row[1]) for row in prices] == pytest.approx(order.min(axis=1), abs=1e-3)
    assert [float(row[2]) for row in prices] == pytest.approx(order.max(axis=1), abs=1e-3)
    assert {row[6] for row in found.rows if row[0] == "area"} == {"0.0000"}


@pytest.mark.parametrize(
    "true", [np.zeros((5, 2)), np.array([[1.0, 2.0]]), np.repeat(np.arange(3.0), 8).reshape(12, 2)]
)
def test_few_or_equal_values_have_fewer_bins(true: Array) -> None:
    found = result_table(true.astype(np.float32), samples(PRICES, true.astype(np.float32), len(true)))
    assert found
    assert sum(int(row[3]) for row in found.rows) == true.size
    assert len(found.rows) <= 2 * len(np.unique(true))


@pytest.mark.parametrize(
    ("anomalous", "groups"),
    [
        (None, {"samples": 50}),
        (np.repeat(np.array([0, 1, 255], np.uint8), [30, 15, 5]), {"usual": 30, "anomalous": 15}),
        (np.full(50, 255, np.uint8), {"samples": 50}),
    ],
    ids=["unlabelled", "labelled", "unknown"],
)
@pytest.mark.parametrize("limit", [None, 0.02, 0.5])
def test_scores_are_counted_in_bins(anomalous: Array | None, groups: dict[str, int], limit: float | None) -> None:
    scores = np.random.default_rng(4).random(50).astype(np.float32)
    found = result_table(scores, samples(NO_TARGET, anomalous, 50), limit)
    assert found
    assert found.head == ("score from", *groups)
    assert [sum(int(row[place]) for row in found.rows) for place, _ in enumerate(groups, 1)] == list(groups.values())
    if limit is not None and "usual" in groups:
        assert f"{(scores[:30] > limit).sum()} of 30 usual and {(scores[30:45] > limit).sum()} of 15" in found.caption


CASES = {
    "multilabel": (TAGS, ["cat", "0.5000", "0.5000", "0.5000", "4"], "F1"),
    "segmentation": (CROPS, ["soil", "0.5000", "0.5000", "0.3333", "4"], "IoU"),
}


@pytest.mark.parametrize("task", CASES)
def test_the_card_has_what_the_metric_is_a_mean_of(task: str, facts: ModelFacts) -> None:
    target, row, head = CASES[task]
    metric = TASKS.select(task).metric
    classes = tuple(ClassScore(name=name, precision=0.5, recall=0.5, support=4) for name in target.names)
    score = Score(metrics={metric.name: 0.5, "loss": 1.0}, metric=metric)
    results = EvaluationResults(samples=4, data_sha256="a" * 64, score=score, kind=target.kind, classes=classes)
    metadata = {**facts.metadata, "target": target.to_text(), "task": task}
    card = model_card(replace(facts, metadata=metadata, results=results, history=None))
    assert row in rows(card)
    assert head in next(found for found in rows(card) if found[1:3] == ["precision", "recall"])
    assert f"{metric.name} 0.5000, loss 1.0000" in card


@pytest.mark.parametrize("task", ["regression", "anomaly-detection", "next-token"])
def test_a_card_of_another_task_tells_no_classes(task: str, facts: ModelFacts) -> None:
    target = {"regression": PRICES, "anomaly-detection": NO_TARGET}.get(task, TargetSpec(kind="next", shape=(0,)))
    metadata = {**facts.metadata, "target": target.to_text(), "task": task}
    card = model_card(replace(facts, metadata=metadata, results=None, history=None))
    assert "class" not in card.replace("classification", "")
    assert ("price (EUR), area" in card) == (task == "regression")


def test_the_card_has_the_table(facts: ModelFacts) -> None:
    true = np.arange(20, dtype=np.float32).reshape(10, 2)
    table = result_table(true + 1, samples(PRICES, true, 10))
    score = Score(metrics={"rmse": 1.0, "loss": 1.0}, metric=TASKS.select("regression").metric)
    results = EvaluationResults(samples=10, data_sha256="a" * 64, score=score, kind="values", table=table)
    metadata = {**facts.metadata, "target": PRICES.to_text(), "task": "regression"}
    card = model_card(replace(facts, metadata=metadata, results=results, history=None))
    assert table
    assert table.caption in card
    assert all(list(row) in rows(card) for row in table.rows)
