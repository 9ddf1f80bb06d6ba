"""The test that decides whether a release is worse on a holdout."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from math import comb

import pytest

from moonfed.edge_client.agent.release_gate import SIGNIFICANCE, Comparison, compare, is_worse


@pytest.mark.parametrize(("lost", "gained"), [(0, 0), (0, 9), (1, 0), (5, 0), (7, 2), (60, 40), (500, 0)])
def test_the_p_value_is_that_of_the_exact_sign_test(lost: int, gained: int) -> None:
    ways = sum(comb(lost + gained, more) for more in range(lost, lost + gained + 1))
    expected = float(Fraction(ways, 2 ** (lost + gained)))
    found = Comparison(samples=1000, correct=0, current_correct=0, lost=lost, gained=gained)
    assert found.p_value == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("samples", "share"), [(20, 0.2), (31, 0.1), (50, 0.3)])
def test_an_equally_good_version_is_declined_at_most_as_often_as_the_level_says(samples: int, share: float) -> None:
    """The two versions differ on each sample with probability `share`, to either one's favour alike."""
    chance = 0.0
    for lost, gained in product(range(samples + 1), repeat=2):
        if lost + gained <= samples and is_worse(
            Comparison(samples=samples, correct=0, current_correct=0, lost=lost, gained=gained), 0.0
        ):
            ways = comb(samples, lost) * comb(samples - lost, gained)
            chance += ways * (share / 2) ** (lost + gained) * (1 - share) ** (samples - lost - gained)
    assert 0.0 < chance <= SIGNIFICANCE


def test_bits_are_compared_sample_by_sample() -> None:
    found = compare(6, 0b011101, 0b110100)
    assert (found.correct, found.current_correct, found.lost, found.gained) == (4, 3, 1, 2)
    assert (found.score, found.current_score) == (4 / 6, 0.5)
    assert found.drop == pytest.approx(-100 / 6)
    assert compare(6, 0b011101, None) == Comparison(samples=6, correct=4)
