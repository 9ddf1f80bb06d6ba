"""The test that decides whether a release is worse on a holdout."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product
from math import comb

import pytest

from moonfed.bundle.target import Kind
from moonfed.edge_client.agent.release_gate import SIGNIFICANCE, Comparison, compare, is_worse


@pytest.mark.parametrize(("lost", "gained"), [(0, 0), (0, 9), (1, 0), (5, 0), (7, 2), (60, 40), (500, 0)])
def test_the_p_value_is_that_of_the_exact_sign_test(lost: int, gained: int) -> None:
    ways = sum(comb(lost + gained, more) for more in range(lost, lost + gained + 1))
    expected = float(Fraction(ways, 2 ** (lost + gained)))
    found = Comparison(kind="class", samples=1000, error=0.0, current_error=0.0, lost=lost, gained=gained)
    assert found.p_value == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("samples", "share"), [(20, 0.2), (31, 0.1), (50, 0.3)])
def test_an_equally_good_version_is_declined_at_most_as_often_as_the_level_says(samples: int, share: float) -> None:
    """The two versions differ on each sample with probability `share`, to either one's favour alike."""
    chance = 0.0
    for lost, gained in product(range(samples + 1), repeat=2):
        found = Comparison(
            kind="class",
            samples=samples,
            error=lost / samples,
            current_error=gained / samples,
            lost=lost,
            gained=gained,
        )
        if lost + gained <= samples and is_worse(found, 0.0):
            ways = comb(samples, lost) * comb(samples - lost, gained)
            chance += ways * (share / 2) ** (lost + gained) * (1 - share) ** (samples - lost - gained)
    assert 0.0 < chance <= SIGNIFICANCE


def test_errors_are_compared_sample_by_sample() -> None:
    found = compare("class", [1, 0, 0, 0, 1, 0], [0, 1, 0, 1, 1, 0])
    assert (found.lost, found.gained) == (1, 2)
    assert [found.score, found.current_score] == pytest.approx([4 / 6, 0.5])
    assert found.drop == pytest.approx(-100 / 6)
    alone = compare("class", [1, 0, 0, 0, 1, 0], None)
    assert alone.score == pytest.approx(4 / 6)
    assert (alone.current_score, alone.drop) == (None, 0.0)


@pytest.mark.parametrize(
    ("kind", "score", "current", "drop"),
    [
        ("values", 3.0, 2.0, 50.0),
        ("none", 9.0, 4.0, 125.0),
        ("next", math.exp(9), math.exp(4), 100 * (math.exp(5) - 1)),
    ],
)
def test_other_figures_fall_in_percent(kind: Kind, score: float, current: float, drop: float) -> None:
    found = compare(kind, [8.0, 10.0] * 10, [4.0] * 20)
    assert [found.score, found.current_score] == pytest.approx([score, current])
    assert found.drop == pytest.approx(drop)
    assert (found.lost, found.gained) == (20, 0)
    assert is_worse(found, 10.0)
    assert not is_worse(found, 1e6)
    assert not is_worse(compare(kind, [4.0] * 20, [8.0, 10.0] * 10), 0.0)


def test_a_drop_of_exactly_the_margin_is_none_too_many() -> None:
    found = compare("class", [1.0] * 25 + [0.0] * 175, [1.0] * 20 + [0.0] * 180)
    assert (found.lost, found.drop) == (5, 2.5)
    assert not is_worse(found, 2.5)
    assert is_worse(found, 2.4)
