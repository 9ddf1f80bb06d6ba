"""Predictions as JSON, in the form that both `predict` commands share."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from moonfed.bundle.manifest import InputSpec
from moonfed.bundle.target import NO_TARGET, TargetSpec, class_target
from moonfed.models.predictions import output_document, output_text, prediction_document

ROWS = InputSpec(kind="features", shape=(2,))
TOKENS = InputSpec(kind="tokens", shape=(4,), vocabulary=("", "a", "b"))
PRICE = TargetSpec(kind="values", names=("price", "area"), shape=(2,), units=("EUR", ""))
STEPS = TargetSpec(kind="values", names=("load",), shape=(2, 1))
POWER = TargetSpec(kind="values", names=("load", "sun"), shape=(2, 2), units=("kW", ""))
TAGS = TargetSpec(kind="labels", names=("cat", "dog"), shape=(2,))
CROPS = TargetSpec(kind="mask", names=("crop", "weed"), shape=(2, 2))
NEXT = TargetSpec(kind="next", shape=(0,))


def test_the_best_class_is_named_and_all_are_listed() -> None:
    assert prediction_document("seven.png", [(7, "seven", 0.9), (1, "one", 0.1)]) == {
        "name": "seven.png",
        "class": "seven",
        "confidence": 0.9,
        "classes": [
            {"index": 7, "label": "seven", "confidence": 0.9},
            {"index": 1, "label": "one", "confidence": 0.1},
        ],
    }


def test_a_class_without_a_name_is_its_index() -> None:
    assert prediction_document("x", [(7, "", 1.0)])["class"] == "7"


@pytest.mark.parametrize(
    ("target", "output", "found", "text"),
    [
        (class_target(("no", "yes")), [0.25, 0.75], {"class": "yes"}, "yes  0.750"),
        (TAGS, [0.75, 0.25], {"labels": ["cat"], "probabilities": {"cat": 0.75, "dog": 0.25}}, "cat 0.750"),
        (TAGS, [0.25, 0.25], {"labels": []}, "none"),
        (PRICE, [312000.0, 81.5], {"values": {"price": 312000.0, "area": 81.5}}, "price 312000 EUR, area 81.5"),
        (STEPS, [[1.5], [2.0]], {"values": [{"load": 1.5}, {"load": 2.0}]}, "load 1.5, 2"),
        (POWER, [[1.5, 3], [2, 4]], {}, "load 1.5, 2 kW; sun 3, 4"),
        (CROPS, [[[0.9, 0.1], [0.2, 0.3]], [[0.1, 0.9], [0.8, 0.7]]], {"shares": {"crop": 0.25, "weed": 0.75}},
         "weed 75.0 %, crop 25.0 %"),
        (NO_TARGET, 0.5, {"score": 0.5}, "score 0.5"),
    ],
    ids=["class", "labels", "no-label", "values", "forecast", "forecasts", "mask", "anomaly"],
)  # fmt: skip
def test_an_output_is_told_by_the_kind_of_target(
    target: TargetSpec, output: Any, found: dict[str, Any], text: str
) -> None:
    document = output_document("one", target, ROWS, np.array(output), np.zeros(2))
    assert found.items() <= document.items()
    assert document["name"] == "one"
    assert output_text(document, target) == text


@pytest.mark.parametrize(("score", "word"), [(0.83, "anomaly"), (0.41, "usual"), (0.2, "usual")])
def test_a_score_above_the_threshold_is_an_anomaly(score: float, word: str) -> None:
    document = output_document("one", NO_TARGET, ROWS, np.array(score), np.zeros(2), 0.41)
    assert document == {"name": "one", "score": score, "threshold": 0.41, "anomalous": word == "anomaly"}
    assert output_text(document, NO_TARGET) == f"{word}  score {score:.4g} (threshold 0.41)"


def test_the_next_token_follows_the_last_that_is_no_padding() -> None:
    output = np.array([[0.1, 0.2, 0.7], [0.2, 0.5, 0.3], [1.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    document = output_document("x", NEXT, TOKENS, output, np.array([2, 1, 0, 0]))
    assert [each["token"] for each in document["next"]] == ["a", "b", ""]
    assert output_text(document, NEXT).startswith("'a' 0.500, 'b' 0.300")
