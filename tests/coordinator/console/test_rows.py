"""Rows of tables: numbers in place of the names of devices."""

from __future__ import annotations

from moonfed.control.evaluations import DeviceEvaluation, DeviceScore, Evaluation
from moonfed.control.run_settings import RunSettings
from moonfed.control.runs import Incident, Ineligible, OpenRound, Round, RoundOutcomes
from moonfed.coordinator.console.rows import evaluation_row, outcomes_row, round_row, run_row
from moonfed.formatting import moment
from tests.proto.control.test_held_out_score import SCORE
from tests.support.operator_records import run_of


def test_a_run_has_the_numbers_of_its_open_round() -> None:
    current = OpenRound(round=4, attempt=1, cohort=("x", "y"), reported=("x",), target=2)
    run = run_of(RunSettings(rounds=9), status="paused", round=3, created=moment(1_700_000_000), open_round=current)
    found = run_row(run)
    assert (found["status"], found["round"], found["rounds"]) == ("paused", 3, 9)
    assert (found["reported"], found["target"], found["created"]) == (1, 2, "2023-11-14T22:13:20Z")


def test_a_round_has_the_numbers_of_its_devices() -> None:
    found = round_row(
        Round(
            run="r",
            round=2,
            attempt=1,
            status="committed",
            counted=("a", "b"),
            missing=("c",),
            incidents=(Incident(device="a", description="clipped"),),
            phases={"training": 1.5},
            outcomes={"counted": 2, "lost": 1},
        )
    )
    assert (found["status"], found["counted"], found["missing"], found["incidents"]) == ("committed", 2, 1, 1)
    assert (found["phases"], found["outcomes"]) == ({"training": 1.5}, {"counted": 2, "lost": 1})


def test_outcomes_are_grouped() -> None:
    outcomes = RoundOutcomes(
        run="r",
        round=2,
        attempt=1,
        status="committed",
        outcomes={"a": "counted", "b": "lost", "c": "counted"},
        time=moment(1_700_000_000),
    )
    found = outcomes_row(outcomes)
    assert {outcome: sorted(names) for outcome, names in found.pop("outcomes").items()} == {
        "counted": ["a", "c"],
        "lost": ["b"],
    }
    assert found == {"run": "r", "round": 2, "attempt": 1, "status": "committed", "time": "2023-11-14T22:13:20Z"}


def test_an_evaluation_on_devices_has_their_numbers() -> None:
    scores = tuple(DeviceScore(device=f"cam-{number}", samples=10, score=number / 10) for number in range(9))
    found = DeviceEvaluation(
        run="r",
        round=4,
        number=1,
        opened=moment(1.0),
        deadline=moment(2.0),
        scores=scores,
        skipped=(Ineligible(reason="no holdout", devices=("b", "c")),),
        waiting=("d",),
    )
    shown = evaluation_row(Evaluation(run="r", round=4, on_devices=found))["on_devices"]
    assert (shown["scores"], shown["waiting"], shown["skipped"]) == (9, 1, [{"reason": "no holdout", "devices": 2}])
    assert [one["device"] for one in shown["worst_scores"]] == [f"cam-{number}" for number in range(5)]
    on_test_set = evaluation_row(Evaluation(run="r", round=4, score=SCORE))
    assert (on_test_set["test_set"], on_test_set["score"]) == (SCORE.test_set, SCORE.to_json())
