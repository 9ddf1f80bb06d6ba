"""Results on a test set: only counts that agree with each other are accepted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from moonfed.bundle.manifest import ACCURACY, Metric
from moonfed.control.codec import from_message
from moonfed.control.held_out_score import ClassScore, HeldOutScore
from moonfed.errors import InvalidInput
from tests.support.operator_records import score_message

SCORE = HeldOutScore(
    test_set="night",
    sha256="a" * 64,
    samples=6,
    metric=ACCURACY,
    metrics={"accuracy": 4 / 6, "loss": 0.5},
    calibration_error=0.125,
    calibration_bins=15,
    classes=("cat", "dog", "fox"),
    support=(3, 3, 0),
    predicted=(4, 2, 0),
    correct=(3, 2, 0),
    confusion=(3, 0, 0, 1, 2, 0, 0, 0, 0),
)


def test_precision_and_recall_are_unknown_where_there_is_nothing_to_divide_by() -> None:
    assert list(SCORE.by_class()) == [
        ClassScore(name="cat", precision=3 / 4, recall=1.0, support=3),
        ClassScore(name="dog", precision=1.0, recall=2 / 3, support=3),
        ClassScore(name="fox", precision=None, recall=None, support=0),
    ]
    assert SCORE.rows() == [(3, 0, 0), (1, 2, 0), (0, 0, 0)]


def test_it_survives_the_network_and_the_database() -> None:
    assert from_message(HeldOutScore, score_message(SCORE)) == SCORE
    assert HeldOutScore.from_document(SCORE.to_document()) == SCORE
    without = replace(SCORE, confusion=())
    assert from_message(HeldOutScore, score_message(without)) == without


def test_sets_have_metrics_of_their_own() -> None:
    assert replace(SCORE, test_set="test").recorded == SCORE.metrics
    assert SCORE.recorded == {"accuracy@night": 4 / 6, "loss@night": 0.5}
    assert SCORE.score == 4 / 6


RMSE = HeldOutScore(
    test_set="test",
    sha256="a" * 64,
    samples=6,
    metric=Metric(name="rmse", maximise=False, share=False, unit="EUR"),
    metrics={"rmse": 55000.0, "r2": -0.5, "mae": 40000.0, "loss": 3.025e9},
)
PIXELS = replace(
    SCORE,
    metric=Metric(name="mean_iou", maximise=True, share=True),
    metrics={"mean_iou": 0.7},
    samples=2,
    counts_of="pixels",
    calibration_error=None,
    calibration_bins=0,
)


@pytest.mark.parametrize("score", [RMSE, PIXELS], ids=["values", "pixels"])
def test_scores_of_other_tasks_survive_the_network_and_the_database(score: HeldOutScore) -> None:
    assert from_message(HeldOutScore, score_message(score)) == score
    assert HeldOutScore.from_document(score.to_document()) == score


def test_the_primary_metric_is_shown_first_and_the_loss_after_the_others() -> None:
    assert list(RMSE.described()) == ["rmse", "mae", "r2", "loss"]
    assert list(SCORE.described()) == ["accuracy", "loss", "calibration error"]


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"test_set": "../night"}, "test_set is"),
        ({"test_set": ""}, "test_set is"),
        ({"sha256": "A" * 64}, "sha256 is"),
        ({"samples": 0}, "samples is 0"),
        ({"metrics": {"accuracy": 1.5}}, r"accuracy is 1\.5"),
        ({"metrics": {"accuracy": float("nan")}}, "accuracy is nan"),
        ({"metrics": {"loss": 1.0}}, "metrics is"),
        ({"calibration_error": -0.1}, "calibration_error is"),
        ({"metrics": {"accuracy": 1.0, "loss": float("inf")}}, "loss is inf"),
        ({"classes": ("cat", "dog")}, "one number for each class"),
        ({"classes": ("cat", "dog", "a\nb")}, "printable"),
        ({"support": (3, 4, 0)}, "do not belong to the same 6 samples"),
        ({"counts_of": "pixels", "predicted": (4, 3, 0)}, "do not belong to the same 6 pixels"),
        ({"correct": (4, 2, 0)}, "do not belong to the same 6 samples"),
        ({"confusion": (3, 0, 0, 1, 2, 0)}, "confusion does not agree"),
        ({"confusion": (3, 0, 0, 2, 1, 0, 0, 0, 0)}, "confusion does not agree"),
    ],
)
def test_wrong_fields_are_named(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        replace(SCORE, **fields)
