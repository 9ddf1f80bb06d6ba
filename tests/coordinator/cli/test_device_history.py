"""The history of a device as text; `test_runs.py` runs the command."""

from __future__ import annotations

from moonfed.coordinator.cli.device_history import history_lines
from tests.support.operator_records import result


def test_results_are_a_table_with_the_number_of_each_outcome() -> None:
    results = [
        result("counted", round=3, attempt=2, seconds=12.3),
        result("declined", round=3, attempt=1, reason="a reason that is much longer than what is left of the line"),
        result("counted", round=2),
    ]
    assert history_lines("cam-1", results, 90) == [
        "ended                    run     round        outcome   training  reason",
        "2001-09-09 01:46:40 UTC  digits  3 attempt 2  counted   12 s",
        "2001-09-09 01:46:40 UTC  digits  3            declined  -         a reason that is much l…",
        "2001-09-09 01:46:40 UTC  digits  2            counted   -",
        "cam-1 in 3 rounds: 2 counted, 1 declined",
    ]


def test_a_device_without_results_is_named() -> None:
    assert history_lines("cam-1", [], 80) == ["cam-1 has no finished rounds on record"]
