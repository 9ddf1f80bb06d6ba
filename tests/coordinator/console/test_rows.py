"""Rows of tables: numbers in place of the names of devices."""

from __future__ import annotations

from moonfed.control.run_settings import RunSettings
from moonfed.coordinator.console.rows import evaluation_rows, outcomes_row, round_row, run_row
from moonfed.v1 import control_pb2
from tests.proto.control.test_held_out_score import SCORE


def test_a_run_has_the_numbers_of_its_open_round() -> None:
    run = control_pb2.Run(
        run="r",
        status=control_pb2.RUN_STATUS_PAUSED,
        round=3,
        created=1_700_000_000,
        settings=RunSettings(rounds=9).to_json(),
        open_round=control_pb2.OpenRound(round=4, cohort=["x", "y"], reported=["x"], target=2),
    )
    found = run_row(run)
    assert (found["status"], found["round"], found["rounds"]) == ("paused", 3, 9)
    assert (found["reported"], found["target"], found["created"]) == (1, 2, "2023-11-14T22:13:20Z")


def test_a_round_has_the_numbers_of_its_devices() -> None:
    found = round_row(
        control_pb2.Round(
            round=2,
            attempt=1,
            status=control_pb2.ROUND_STATUS_COMMITTED,
            counted=["a", "b"],
            missing=["c"],
            incidents=[control_pb2.Incident(device="a", description="clipped")],
            phases={"training": 1.5},
            outcomes={"counted": 2, "lost": 1},
        )
    )
    assert (found["status"], found["counted"], found["missing"], found["incidents"]) == ("committed", 2, 1, 1)
    assert (found["phases"], found["outcomes"]) == ({"training": 1.5}, {"counted": 2, "lost": 1})


def test_outcomes_are_grouped() -> None:
    outcomes = control_pb2.RoundOutcomes(
        round=2,
        attempt=1,
        status=control_pb2.ROUND_STATUS_COMMITTED,
        outcomes={"a": "counted", "b": "lost", "c": "counted"},
        time=1_700_000_000,
    )
    found = outcomes_row(outcomes)
    assert {outcome: sorted(names) for outcome, names in found.pop("outcomes").items()} == {
        "counted": ["a", "c"],
        "lost": ["b"],
    }
    assert found == {"round": 2, "attempt": 1, "status": "committed", "time": "2023-11-14T22:13:20Z"}


def test_an_evaluation_on_devices_has_their_numbers() -> None:
    on_devices = control_pb2.DeviceEvaluation(
        round=4,
        scores=[control_pb2.DeviceScore(device="a", samples=4, correct=3)],
        skipped=[control_pb2.SkippedDevices(reason="no holdout", devices=["c", "d"])],
        waiting=["e"],
    )
    found = evaluation_rows(
        [
            control_pb2.Evaluation(round=4, test_set=SCORE.to_message()),
            control_pb2.Evaluation(round=4, devices=on_devices),
        ]
    )
    assert [one["test_set"] for one in found["test_sets"]] == [SCORE.test_set]
    (one,) = found["device_evaluations"]
    assert (one["devices"], one["skipped"], one["waiting"]) == (1, {"no holdout": 2}, 1)
    assert one["lowest"] == [{"device": "a", "samples": 4, "correct": 3, "local_correct": None}]
