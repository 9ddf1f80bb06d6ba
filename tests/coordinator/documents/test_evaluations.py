"""Evaluations as JSON."""

from __future__ import annotations

import pytest

from moonfed.coordinator.documents.evaluations import (
    device_evaluation_document,
    evaluations_document,
    lowest_scores,
)
from moonfed.v1 import control_pb2
from tests.proto.control.test_held_out_score import SCORE

ON_DEVICES = control_pb2.DeviceEvaluation(
    run="r",
    round=3,
    number=1,
    opened=1_700_000_000.5,
    deadline=1_700_003_600.0,
    scores=[
        control_pb2.DeviceScore(device="cam-1", samples=40, correct=30, local_correct=31),
        control_pb2.DeviceScore(device="cam-2", samples=20, correct=10),
    ],
    skipped=[control_pb2.SkippedDevices(reason="this device has no holdout", devices=["cam-3", "cam-4"])],
    waiting=["cam-5"],
)


def test_results_on_test_sets_have_classes_and_confusion() -> None:
    entries = [control_pb2.Evaluation(round=round_, test_set=SCORE.to_message()) for round_ in (0, 3)]
    document = evaluations_document([*entries, control_pb2.Evaluation(round=3, devices=ON_DEVICES)])
    assert [(found["round"], found["test_set"]) for found in document["test_sets"]] == [
        (0, SCORE.test_set),
        (3, SCORE.test_set),
    ]
    assert document["test_sets"][1]["confusion"] == [list(row) for row in SCORE.rows()]
    assert [found["name"] for found in document["test_sets"][1]["classes"]] == list(SCORE.classes)
    assert document["device_evaluations"] == [device_evaluation_document(ON_DEVICES)]


def test_an_evaluation_on_devices_names_who_is_not_in_it() -> None:
    assert device_evaluation_document(ON_DEVICES) == {
        "run": "r",
        "round": 3,
        "number": 1,
        "opened": "2023-11-14T22:13:20Z",
        "deadline": "2023-11-14T23:13:20Z",
        "closed": None,
        "summary": None,
        "devices": [
            {"device": "cam-1", "samples": 40, "correct": 30, "local_correct": 31},
            {"device": "cam-2", "samples": 20, "correct": 10, "local_correct": None},
        ],
        "lowest": [
            {"device": "cam-2", "samples": 20, "correct": 10, "local_correct": None},
            {"device": "cam-1", "samples": 40, "correct": 30, "local_correct": 31},
        ],
        "skipped": {"this device has no holdout": ["cam-3", "cam-4"]},
        "waiting": ["cam-5"],
    }
    summary = control_pb2.DeviceSummary(devices=2, median=0.625, worst_decile=0.5, compared=1, worse=1)
    closed = control_pb2.DeviceEvaluation(closed=1_700_000_000, summary=summary)
    found = device_evaluation_document(closed)
    assert found["closed"] == "2023-11-14T22:13:20Z"
    assert found["summary"] == {"devices": 2, "median": 0.625, "worst_decile": 0.5, "compared": 1, "worse": 1}


@pytest.mark.parametrize(
    ("scores", "lowest"),
    [
        pytest.param({}, "", id="no device"),
        pytest.param({"a": (20, 20)}, "a", id="one device"),
        pytest.param({"a": (20, 12), "b": (200, 110), "c": (20, 11), "d": (20, 0)}, "dbca", id="more samples first"),
        pytest.param({name: (20, number) for number, name in enumerate("gfedcba")}, "gfedc", id="five at most"),
        pytest.param({"b": (20, 20), "a": (20, 20)}, "ab", id="all equal"),
    ],
)
def test_the_devices_with_the_lowest_accuracy_are_named(scores: dict[str, tuple[int, int]], lowest: str) -> None:
    found = control_pb2.DeviceEvaluation(
        scores=[
            control_pb2.DeviceScore(device=name, samples=samples, correct=correct)
            for name, (samples, correct) in scores.items()
        ]
    )
    assert [score.device for score in lowest_scores(found)] == list(lowest)
