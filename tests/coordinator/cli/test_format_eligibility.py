"""The devices of a run that are eligible, and those that are not, in a few lines."""

from __future__ import annotations

import pytest

from moonfed.control.run_settings import RunSettings
from moonfed.control.runs import Ineligible, Run
from moonfed.coordinator.cli.format_eligibility import absence_lines, eligibility_lines
from tests.support.operator_records import run_of as any_run


def run_of(*groups: tuple[str, int], eligible: int = 0, checking: int = 0) -> Run:
    ineligible = [
        Ineligible(reason=reason, devices=tuple(f"cam-{number:04}" for number in range(count)))
        for reason, count in groups
    ]
    return any_run(RunSettings(rounds=1), eligible=eligible, checking=checking, ineligible=tuple(ineligible))


def test_nothing_is_shown_while_all_devices_are_eligible() -> None:
    assert eligibility_lines(run_of(eligible=4)) == []


def test_a_thousand_devices_take_a_line_for_each_reason() -> None:
    lines = eligibility_lines(run_of(("no data", 990), ("no memory", 10), eligible=3, checking=2))
    assert lines[0] == "devices eligible: 3, still checking: 2, not eligible: 1,000"
    shown = ", ".join(f"cam-{number:04}" for number in range(8))
    assert lines[1:] == [f"  990: no data: {shown} and 982 more", f"  10: no memory: {shown} and 2 more"]


def test_many_reasons_are_counted() -> None:
    lines = eligibility_lines(run_of(*((f"reason {number}", 1) for number in range(20))))
    assert len(lines) == 10
    assert lines[-1] == "  and 12 more reasons, which --json lists"


def test_a_terminal_shows_the_first_absent_classes_and_the_number_of_the_others() -> None:
    run = any_run(RunSettings(), absent_classes=tuple(f"class {number}" for number in range(100)))
    wide, narrow = absence_lines(run), absence_lines(run, 50)
    assert wide[0].endswith("class 98, class 99")
    assert narrow[0].startswith("no eligible device has samples of: class 0")
    assert narrow[-1].endswith("class 7 and 92 more")
    assert max(map(len, narrow)) <= 50


FOLDER = "'PATH' has the folder 'Screenshots', and no class has that name: these are up, down, side"


@pytest.mark.parametrize(
    ("groups", "width"),
    [
        pytest.param([(FOLDER, 1)], 80, id="one"),
        pytest.param([(FOLDER, 900), ("no data", 1)], 40, id="narrow"),
        pytest.param([("x" * 1000, 2), (FOLDER, 1), (FOLDER + "!", 1)], 80, id="several"),
        pytest.param([(f"{FOLDER} {number}", 1) for number in range(9)], 80, id="many"),
    ],
)
def test_a_terminal_names_the_devices_of_long_reasons(groups: list[tuple[str, int]], width: int) -> None:
    head, *lines = eligibility_lines(run_of(*groups), width)
    assert max(map(len, [head, *lines])) <= width
    assert len(lines) <= 4
    assert sum(": cam-0000" in line for line in lines) == min(len(groups), 3)


def test_a_terminal_shows_a_single_reason_in_full() -> None:
    _, *lines = eligibility_lines(run_of((FOLDER, 1)), 80)
    assert " ".join(" ".join(lines).split()) == f"1: {FOLDER}: cam-0000"
