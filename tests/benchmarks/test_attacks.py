"""The benchmark of attacks at its smallest scale, with real processes: every figure is present and positive."""

from __future__ import annotations

from itertools import chain

import pytest

from benchmarks.attacks import NAMES, AttackScale, measure_attacks
from benchmarks.load.attackers import ATTACKS
from benchmarks.load.coordinator_process import SyntheticModel

pytestmark = pytest.mark.slow


@pytest.mark.usefixtures("forked_programs")
def test_every_figure_is_measured() -> None:
    assert set(NAMES) == set(ATTACKS)
    scale = AttackScale(model=SyntheticModel(megabytes=1.0), devices=2, turns=1, requests=2)
    figures = list(chain.from_iterable(measure_attacks(scale)))
    expected: list[tuple[str, str]] = []
    for name in NAMES.values():
        expected += [("a round without an attack", ""), (f"a round during {name}", "")]
        expected += [(f"{what} during {name} / usual", "at most 2") for what in ("round", "request")]
    assert [(figure.name, figure.target) for figure in figures] == expected
    assert all((figure.value or 0) > 0 for figure in figures)
