"""The benchmark of privacy at its smallest."""

from __future__ import annotations

from itertools import chain

from benchmarks.privacy import measure_privacy


def test_the_added_time_has_a_target() -> None:
    figures = list(chain.from_iterable(measure_privacy(values=4000, turns=1)))
    assert [figure.name for figure in figures if figure.at_most] == ["wall time added by privacy"]
    assert all(figure.value for figure in figures)
