"""The history of a device as text; `test_runs.py` runs the command."""

from __future__ import annotations

from moonfed.coordinator.cli.device_history import history_lines
from moonfed.v1 import control_pb2


def result(round_: int, outcome: str, **fields: object) -> control_pb2.DeviceResult:
    return control_pb2.DeviceResult(run="digits", round=round_, outcome=outcome, time=1e9, **fields)  # type: ignore[arg-type]


def test_results_are_a_table_with_the_number_of_each_outcome() -> None:
    results = [
        result(3, "counted", attempt=2, seconds=12.3),
        result(3, "declined", attempt=1, reason="a reason that is much longer than what is left of the line"),
        result(2, "counted", attempt=1),
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
