"""Predictions as JSON, in the form that `predict` and `classify` share."""

from __future__ import annotations

from moonfed.models.predictions import prediction_document


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
