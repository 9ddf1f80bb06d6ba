"""Single values as text."""

from __future__ import annotations

import pytest

from moonfed.control.run_settings import RunSettings
from moonfed.coordinator.cli.format import duration, metrics_text, moment, snapshot_line
from moonfed.formatting import moment as utc
from tests.support.operator_records import run_of


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (89, "89 s"), (90, "2 min"), (5300, "88 min"), (7500, "2 h"), (40 * 3600, "40 h"), (9e5, "10 d")],
)
def test_durations_have_one_unit(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_metrics_are_sorted_and_numbers_of_samples_are_whole() -> None:
    assert metrics_text({"loss": 0.51, "holdout_samples": 12.0}) == "holdout_samples 12, loss 0.5100"


def test_a_moment_is_in_utc() -> None:
    assert (moment(utc(1_700_000_000.0)), moment(None)) == ("2023-11-14 22:13:20 UTC", "-")


def test_a_run_of_one_round_is_not_one_rounds() -> None:
    run = run_of(RunSettings(rounds=1), method="moon", waiting="waiting for it")
    assert snapshot_line(run) == "run r (moon): running, 0 of 1 round; waiting for it"
