"""The metrics' benchmark at its smallest, with real processes."""

from __future__ import annotations

from itertools import chain

import pytest

from benchmarks.load.coordinator_process import SyntheticModel
from benchmarks.metrics import MetricsScale, measure_metrics

pytestmark = pytest.mark.slow

SMALLEST = MetricsScale(model=SyntheticModel(megabytes=0.1), devices=2, rounds=2, turns=1, scrape_seconds=0.05)


@pytest.mark.usefixtures("forked_programs")
def test_both_times_are_compared() -> None:
    figures = list(chain.from_iterable(measure_metrics(SMALLEST)))
    assert [figure.name for figure in figures if figure.target == "at most 1.02"] == [
        "processor time, with / without metrics",
        "wall time, with / without metrics",
    ]
    assert all(figure.value and figure.value > 0 for figure in figures)
