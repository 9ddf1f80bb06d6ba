"""The benchmark of robust aggregation at its smallest: attacks harm an unbounded fleet; each defence is measured."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.robust import (
    AGAINST_ATTACKS,
    ATTACKED,
    ATTACKS,
    CASES,
    DEFAULT,
    MALICIOUS,
    NONE,
    REDUCERS,
    Fleet,
    bounded,
    measure_robust,
    simulate,
)

pytestmark = pytest.mark.slow

DIGITS = CASES["digits"]
LOOSE = bounded(1.5, 3)
EXCLUDING = bounded(1.25, 1.25, excludes=True)


def test_every_figure_is_measured() -> None:
    figures = [figure for table in measure_robust(None, seeds=1, rounds=1) for figure in table]
    names = {figure.name for figure in figures}
    for attack in ATTACKS:
        assert {f"digits, {attack}: final accuracy, {defence.name}" for defence in AGAINST_ATTACKS} <= names
    targets = {figure.name for figure in figures if figure.at_most is not None}
    assert all(name.endswith(f"accuracy lost, {DEFAULT.name}") for name in targets)
    assert len(targets) == 6, "three honest fleets and three attacks"


@pytest.mark.parametrize("attack", ["label flip", "reversal"])
def test_an_attack_ruins_an_unbounded_fleet_and_is_left_out_of_a_bounded_one(attack: str) -> None:
    case = replace(DIGITS, rounds=8)
    found = simulate(Fleet(case=case, beta=ATTACKED, seed=0, attack=attack), None, (NONE, DEFAULT, EXCLUDING))
    assert found[NONE.name].accuracy < 30
    assert found[EXCLUDING.name].accuracy > 80
    assert found[DEFAULT.name].streaks[MALICIOUS] == 8, "it is named in every round"
    assert found[EXCLUDING.name].streaks[MALICIOUS] == 3


def test_a_backdoor_works_within_loose_bounds_and_not_where_the_outlier_is_left_out() -> None:
    fleet = Fleet(case=replace(DIGITS, rounds=12), beta=ATTACKED, seed=0, attack="backdoor")
    found = simulate(fleet, None, (LOOSE, REDUCERS[1]))
    assert found[LOOSE.name].backdoor > 90
    assert found[REDUCERS[1].name].backdoor < 30
