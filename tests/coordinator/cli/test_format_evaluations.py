"""Evaluations as `run show` and `run evaluate` print them."""

from __future__ import annotations

from dataclasses import replace

from moonfed.control.evaluations import DeviceEvaluation, DeviceScore, Evaluation
from moonfed.control.runs import Ineligible
from moonfed.coordinator.cli.format_evaluations import device_evaluation_lines, evaluation_lines
from moonfed.formatting import moment
from tests.proto.control.test_held_out_score import RMSE, SCORE

BEGAN = DeviceEvaluation(run="r", round=3, number=1, opened=moment(1.0), deadline=moment(3601.0))
FOUND = replace(
    BEGAN,
    closed=moment(60.0),
    scores=(
        DeviceScore(device="cam-1", samples=40, score=0.75, local_score=0.775),
        DeviceScore(device="cam-2", samples=20, score=0.5),
    ),
    median=0.625,
    worst_decile=0.5,
    compared=1,
    worse=1,
    skipped=(Ineligible(reason="no holdout", devices=("cam-3", "cam-4")),),
    waiting=("cam-5",),
)


def test_an_evaluation_names_the_devices_that_are_not_in_it() -> None:
    assert device_evaluation_lines(FOUND) == [
        "model 3 on 2 devices: accuracy median 0.6250, worst decile 0.5000; "
        "worse than the device's own model on 1 of 1",
        "  lowest accuracy: cam-2 0.5000 (on 20 samples), cam-1 0.7500, 0.7750 with its own (on 40 samples)",
        "  2 skipped: no holdout: cam-3, cam-4",
        "  1 did not answer: cam-5",
    ]


def test_a_metric_that_is_better_if_lower_has_its_highest_scores_shown() -> None:
    scores = (DeviceScore(device="a", samples=20, score=2.5), DeviceScore(device="b", samples=20, score=31234.5))
    found = replace(FOUND, metric=RMSE.metric, scores=scores, median=15618.5, worst_decile=31234.5)
    assert device_evaluation_lines(found)[:2] == [
        "model 3 on 2 devices: rmse median 15618.5 EUR, worst decile 31234.5 EUR; "
        "worse than the device's own model on 1 of 1",
        "  highest rmse: b 31234.5 EUR (on 20 samples), a 2.5000 EUR (on 20 samples)",
    ]
    assert evaluation_lines([Evaluation(run="r", round=3, score=RMSE)])[1:] == [
        "test set test, model 3: rmse 55000.0 EUR, mae 40000.0 EUR, r2 -0.5000, loss 3.02e+09, 6 samples"
    ]


def test_an_open_evaluation_says_whom_it_waits_for() -> None:
    began = replace(BEGAN, round=0, waiting=tuple(f"cam-{number}" for number in range(9)))
    assert device_evaluation_lines(began) == [
        "model 0 on 0 devices, under way: no device has scored it",
        "  9 yet to answer: cam-0, cam-1, cam-2, cam-3 and 5 more",
    ]


def test_all_devices_and_sets_are_shown_without_a_width_and_the_first_ones_with_it() -> None:
    names = tuple(f"cam-{number}" for number in range(9))
    reasons = tuple(Ineligible(reason=f"reason {number}", devices=names) for number in range(6))
    found = replace(BEGAN, closed=moment(1.0), skipped=reasons, waiting=names)
    sets = [replace(SCORE, test_set=f"set-{number}") for number in range(5)]
    entries = [Evaluation(run="r", round=3, score=score) for score in sets]
    entries.append(Evaluation(run="r", round=3, on_devices=found))
    text = "\n".join(evaluation_lines(entries))
    assert [text.count(name) for name in ("set-", "reason ", "cam-8")] == [5, 6, 7]
    shown = "\n".join(evaluation_lines(entries, 200))
    assert [shown.count(name) for name in ("set-", "reason ", "and 5 more")] == [3, 4, 5]
    assert "2 more test sets; --all shows them" in shown


def test_a_run_shows_the_newest_score_of_each_set_and_the_newest_model_on_devices() -> None:
    day = replace(SCORE, test_set="test", metrics={"accuracy": 0.5, "loss": 0.5})
    entries = [
        Evaluation(run="r", round=0, score=replace(SCORE, metrics={"accuracy": 0.1})),
        Evaluation(run="r", round=0, on_devices=replace(BEGAN, round=0)),
        Evaluation(run="r", round=3, score=SCORE),
        Evaluation(run="r", round=3, score=day),
        Evaluation(run="r", round=3, on_devices=FOUND),
    ]
    lines = evaluation_lines(entries)
    assert lines[1:3] == [
        "test set night, model 3: accuracy 0.6667, loss 0.5000, calibration error 0.1250, 6 samples; "
        "lowest recall dog 0.67, cat 1.00",
        "test set test, model 3: accuracy 0.5000, loss 0.5000, calibration error 0.1250, 6 samples; "
        "lowest recall dog 0.67, cat 1.00",
    ]
    assert lines[3:] == device_evaluation_lines(FOUND)
    assert all(len(line) <= 60 for line in evaluation_lines(entries, 60))
    assert evaluation_lines([]) == []
