"""Output of `run show` for a run and its rounds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from moonfed.control.kinds import Amount
from moonfed.control.run_settings import RunSettings
from moonfed.control.runs import Incident, Ineligible, OpenRound, Round
from moonfed.coordinator.cli.format_run import ROUNDS_READ, run_lines
from tests.support.operator_records import run_of

COMMITTED, ABANDONED = "committed", "abandoned"
NAMES = tuple(f"cam-{number:04}" for number in range(1000))
METRICS = {"accuracy": 0.9, "loss": 0.1, "train_loss": 0.2, "holdout_accuracy": 0.8, "holdout_samples": 12.0}


def a_round(**fields: Any) -> Round:
    return Round(run="r", **fields)


def shown(settings: RunSettings, *rounds: Round) -> list[str]:
    return run_lines(run_of(settings), None, rounds)


def test_the_cohort_and_the_timeouts_of_a_round_are_shown() -> None:
    assert not any("settings" in line for line in shown(RunSettings()))
    chosen = RunSettings(
        rounds=1,
        cohort=Amount(count=4),
        quorum=Amount(count=2),
        minimum_devices=3,
        deadline=90,
        heartbeat_timeout=12.5,
        over_selection=0.3,
        labels={"site": "berlin", "camera": "hd"},
        sampling="samples",
    )
    assert (
        "settings: rounds 1, cohort 4, minimum devices 3, quorum 2, deadline 90 s, heartbeat timeout 12.5 s, "
        "over selection 30%, labels camera=hd, site=berlin, sampling samples"
    ) in shown(chosen)
    (line,) = (line for line in shown(RunSettings(rounds=1, asynchronous=5, max_staleness=7))[1:2])
    assert line.endswith("asynchronous 5, max staleness 7")


def test_an_abandoned_round_shows_its_updates_and_why_rather_than_its_whole_cohort() -> None:
    reason = "too few updates; late: cam-3"
    abandoned = a_round(
        round=1, attempt=1, status=ABANDONED, missing=["cam-1", "cam-2", "cam-3"], updates=1, reason=reason
    )
    committed = a_round(round=1, attempt=2, status=COMMITTED, counted=["cam-1", "cam-2"], missing=["cam-3"], updates=2)
    head, first, second = shown(RunSettings(rounds=1), abandoned, committed)[-3:]
    assert head == "round  attempt  updates  seconds  outcome"
    assert first == f"1      1        1 of 3   0.0      abandoned: {reason}"
    assert second == "1      2        2 of 3   0.0      committed, 1 missing: cam-3"


def test_rounds_that_all_succeed_at_once_need_no_attempts() -> None:
    rounds = [a_round(round=1, attempt=1, status=COMMITTED, counted=["a"], updates=1, metrics={"loss": 1})]
    run = run_of(RunSettings(rounds=1), initial_metrics={"loss": 2.0})
    assert run_lines(run, None, rounds)[-3:] == [
        "round  updates  seconds  loss    outcome",
        "0                        2.0000  start",
        "1      1 of 1   0.0      1.0000  committed",
    ]


def test_devices_that_have_lost_their_personal_tensors_are_counted() -> None:
    first = a_round(round=1, attempt=1, status=COMMITTED, counted=["a", "b"], updates=2)
    second = replace(first, round=2, personal_lost=1)
    assert shown(RunSettings(rounds=2), first, second)[-3:] == [
        "round  updates  seconds  personal_lost  outcome",
        "1      2 of 2   0.0      0              committed",
        "2      2 of 2   0.0      1              committed",
    ]


def test_the_open_round_names_the_slowest_devices_and_those_that_failed() -> None:
    current = OpenRound(
        round=3,
        attempt=1,
        seconds=34.0,
        target=200,
        reported=NAMES[:151],
        lost=NAMES[151:155],
        progress={name: number / 100 for number, name in enumerate(NAMES[155:200])},
    )
    run = run_of(RunSettings(rounds=9), open_round=current)
    assert run_lines(run, None, [], 80)[-3:] == [
        "round 3, attempt 1 opened 34 s ago: 151 of 200 updates, 4 lost",
        "  lost: cam-0151, cam-0152, cam-0153 and 1 more",
        "  slowest: cam-0155 0%, cam-0156 1%, cam-0157 2%, cam-0158 3%, cam-0159 4%",
    ]


def test_ineligible_devices_are_summarised_by_reason() -> None:
    reasons = {1: "its labels exceed 9", 9: "needs 2 GB of memory"}
    groups = [Ineligible(reason=reason, devices=NAMES[:number]) for number, reason in reasons.items()]
    run = run_of(RunSettings(rounds=9), eligible=988, checking=3, ineligible=tuple(groups))
    assert run_lines(run, None, [], 80)[-3:] == [
        "devices eligible: 988, still checking: 3, not eligible: 10",
        "  9: needs 2 GB of memory: cam-0000, cam-0001, cam-0002 and 6 more",
        "  1: its labels exceed 9: cam-0000",
    ]
    groups += [Ineligible(reason=f"reason {n}", devices=("cam-1",)) for n in range(7)]
    assert (
        run_lines(replace(run, ineligible=tuple(groups)), None, [], 80)[-1]
        == "  and 6 more reasons, which --json lists"
    )


@pytest.mark.parametrize("rounds", [0, 1, ROUNDS_READ])
@pytest.mark.parametrize("last", [COMMITTED, ABANDONED])
def test_a_screen_has_at_most_40_lines_of_80_columns(rounds: int, last: str) -> None:
    settings = RunSettings(
        rounds=500,
        labels={f"label-{number}": "x" * 30 for number in range(9)},
        uplink_encoding="int8+zstd",
        reducer="median",
        reducer_settings={f"setting-{number}": "1" for number in range(30)},
    )
    groups = ("cohort", "reported", "rejected", "declined", "lost", "left", "replacements")
    current: dict[str, Any] = dict.fromkeys(groups, NAMES) | {"progress": dict.fromkeys(NAMES, 0.5)}
    run = run_of(
        settings,
        waiting=f"round 41 waits for 990 of 1,000 devices: {', '.join(NAMES)}",
        initial_metrics=METRICS,
        ineligible=tuple(Ineligible(reason=f"reason {number} " * 20, devices=NAMES) for number in range(9)),
        open_round=OpenRound(round=41, attempt=1, **current),
    )
    found = [
        a_round(
            round=number, attempt=12, status=last, counted=NAMES[:900], missing=NAMES[900:], updates=900,
            seconds=1234.5, metrics=METRICS, reason="too few " * 40 if last == ABANDONED else "",
            incidents=tuple(Incident(device=name, description="was scaled down " * 9) for name in NAMES),
        )
        for number in range(1, rounds + 1)
    ]  # fmt: skip
    lines = run_lines(run, {"name": "fedadam", **{f"beta{number}": 0.9 for number in range(20)}}, found, 80)
    assert len(lines) <= 40
    assert [line for line in lines if len(line) > 80] == []
    newest = [line for line in lines if line.startswith(f"{rounds} ")]
    assert len(newest) == 1, "the newest model is shown"


def test_metrics_that_do_not_fit_give_way_to_more_important_ones() -> None:
    rounds = [a_round(round=1, attempt=1, status=COMMITTED, counted=NAMES[:9], updates=9, metrics=METRICS)]
    lines = run_lines(run_of(RunSettings(rounds=1)), None, rounds, 80)
    assert lines[-2] == "round  updates  seconds  accuracy  holdout_accuracy  loss    outcome"
    assert "holdout_samples" in run_lines(run_of(RunSettings(rounds=1)), None, rounds)[-2]


@pytest.mark.parametrize(
    ("metrics", "devices", "attempt"),
    [
        pytest.param(
            {"holdout_accuracy": 0.8, "holdout_loss": 0.4, "train_loss": 0.2}, 3, 1, id="without an evaluator"
        ),
        pytest.param({**METRICS, "holdout_loss": 0.4}, 3, 1, id="with an evaluator"),
        pytest.param({**METRICS, "accuracy@night": 0.5, "loss@night": 1.5}, 1000, 2, id="large and repeated"),
    ],
)
def test_the_accuracy_on_the_devices_fits_into_a_terminal(
    metrics: dict[str, float], devices: int, attempt: int
) -> None:
    committed = a_round(
        round=40, attempt=attempt, status=COMMITTED, counted=NAMES[:devices], updates=devices, metrics=metrics
    )
    *_, head, row = run_lines(run_of(RunSettings(rounds=90)), None, [committed], 80)
    assert "holdout_accuracy" in head.split()
    assert "0.8000" in row.split()
    assert len(row) <= 80
