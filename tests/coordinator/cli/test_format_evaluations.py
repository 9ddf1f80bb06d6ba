"""Evaluations as `run show` and `run evaluate` print them."""

from __future__ import annotations

from dataclasses import replace

from moonfed.coordinator.cli.format_evaluations import device_evaluation_lines, evaluation_lines
from moonfed.v1 import control_pb2
from tests.proto.control.test_held_out_score import SCORE

FOUND = control_pb2.DeviceEvaluation(
    run="r",
    round=3,
    number=1,
    opened=1.0,
    deadline=3601.0,
    closed=60.0,
    scores=[
        control_pb2.DeviceScore(device="cam-1", samples=40, correct=30, local_correct=31),
        control_pb2.DeviceScore(device="cam-2", samples=20, correct=10),
    ],
    summary=control_pb2.DeviceSummary(devices=2, median=0.625, worst_decile=0.5, compared=1, worse=1),
    skipped=[control_pb2.SkippedDevices(reason="no holdout", devices=["cam-3", "cam-4"])],
    waiting=["cam-5"],
)


def test_an_evaluation_names_the_devices_that_are_not_in_it() -> None:
    assert device_evaluation_lines(FOUND) == [
        "model 3 on 2 devices: accuracy median 0.6250, worst decile 0.5000; "
        "worse than the device's own model on 1 of 1",
        "  lowest accuracy: cam-2 0.5000 (on 20 samples), cam-1 0.7500, 0.7750 with its own (on 40 samples)",
        "  2 skipped: no holdout: cam-3, cam-4",
        "  1 did not answer: cam-5",
    ]


def test_an_open_evaluation_says_whom_it_waits_for() -> None:
    began = control_pb2.DeviceEvaluation(run="r", round=0, number=1, waiting=[f"cam-{number}" for number in range(9)])
    assert device_evaluation_lines(began) == [
        "model 0 on 0 devices, under way: no device has scored it",
        "  9 yet to answer: cam-0, cam-1, cam-2, cam-3 and 5 more",
    ]


def test_all_devices_and_sets_are_shown_without_a_width_and_the_first_ones_with_it() -> None:
    names = [f"cam-{number}" for number in range(9)]
    reasons = [control_pb2.SkippedDevices(reason=f"reason {number}", devices=names) for number in range(6)]
    found = control_pb2.DeviceEvaluation(round=3, closed=1.0, skipped=reasons, waiting=names)
    sets = [replace(SCORE, test_set=f"set-{number}") for number in range(5)]
    entries = [control_pb2.Evaluation(round=3, test_set=score.to_message()) for score in sets]
    entries.append(control_pb2.Evaluation(round=3, devices=found))
    text = "\n".join(evaluation_lines(entries))
    assert [text.count(name) for name in ("set-", "reason ", "cam-8")] == [5, 6, 7]
    shown = "\n".join(evaluation_lines(entries, 200))
    assert [shown.count(name) for name in ("set-", "reason ", "and 5 more")] == [3, 4, 5]
    assert "2 more test sets; --all shows them" in shown


def test_a_run_shows_the_newest_score_of_each_set_and_the_newest_model_on_devices() -> None:
    day = replace(SCORE, test_set="test", accuracy=0.5)
    entries = [
        control_pb2.Evaluation(round=0, test_set=replace(SCORE, accuracy=0.1).to_message()),
        control_pb2.Evaluation(round=0, devices=control_pb2.DeviceEvaluation(round=0)),
        control_pb2.Evaluation(round=3, test_set=SCORE.to_message()),
        control_pb2.Evaluation(round=3, test_set=day.to_message()),
        control_pb2.Evaluation(round=3, devices=FOUND),
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
