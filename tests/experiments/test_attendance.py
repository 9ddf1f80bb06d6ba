"""The parties whose updates count: drawn from the seed, and as the coordinator replaces and closes."""

from __future__ import annotations

import numpy as np
import pytest

from moonfed.control.kinds import Amount
from moonfed.control.run_settings import RunSettings
from moonfed.coordinator.draw import Draw
from moonfed.coordinator.rounds.cohort import draw_cohort, draw_order
from moonfed.experiments.attendance import Behaviour, attendance
from moonfed.fleet.assignment import AttemptId

SAMPLES = {f"party-{number}": 10 + number for number in range(1, 41)}
DRAW = Draw(bytes(range(32)))
NOBODY: tuple[str, ...] = ()


def attempt(round_: int, number: int = 1) -> AttemptId:
    return AttemptId(run="simulation", round=round_, attempt=number)


def test_without_dropouts_the_cohort_counts() -> None:
    settings = RunSettings(rounds=9, cohort=Amount(count=8), sampling="samples")
    for round_ in range(1, 10):
        found = attendance(settings, DRAW, attempt(round_), SAMPLES, NOBODY, Behaviour(seed=4))
        assert sorted(found.counted) == list(draw_cohort(settings, DRAW, round_, 1, SAMPLES, SAMPLES))
        assert not found.stragglers


def test_dropouts_are_replaced_in_the_order_of_the_draw() -> None:
    settings, behaviour = RunSettings(rounds=9, cohort=Amount(count=8)), Behaviour(dropouts=0.5)
    for round_ in range(1, 30):
        found = attendance(settings, DRAW, attempt(round_), SAMPLES, NOBODY, behaviour).counted
        order = draw_order(settings, DRAW, round_, 1, SAMPLES, SAMPLES)
        reliable = [name for name in order if not behaviour.drops_out(attempt(round_), name)]
        assert found == set(reliable[:8])
    drawn = [behaviour.drops_out(attempt(1, number), name) for number in range(1, 101) for name in SAMPLES]
    assert np.mean(drawn) == pytest.approx(0.5, abs=5 * 0.5 / len(drawn) ** 0.5)


def test_over_selected_stragglers_are_too_late() -> None:
    settings = RunSettings(rounds=9, cohort=Amount(count=8), over_selection=0.5)
    for round_ in range(1, 30):
        found = attendance(settings, DRAW, attempt(round_), SAMPLES, NOBODY, Behaviour(stragglers=0.25))
        assert (len(found.counted), len(found.stragglers)) == (8, 3)
        assert not found.counted & found.stragglers
    late = attendance(settings, DRAW, attempt(1), SAMPLES, NOBODY, Behaviour(stragglers=0.5))
    assert len(late.counted & late.stragglers) == 2  # six of twelve are in time, and eight are needed


def test_an_attempt_counts_what_the_one_before_had() -> None:
    settings, reused = RunSettings(rounds=9, cohort=Amount(count=8)), ("party-3", "party-7")
    found = attendance(settings, DRAW, attempt(1, 2), SAMPLES, reused, Behaviour())
    assert len(found.counted) == 6
    assert not found.counted & set(reused)
    cohort = draw_cohort(settings, DRAW, 1, 2, SAMPLES, SAMPLES, reused)
    assert found.counted | set(reused) == set(cohort)
