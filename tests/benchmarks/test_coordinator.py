"""The coordinator's benchmark at its smallest, with real processes: every figure is present and positive."""

from __future__ import annotations

from itertools import chain

import pytest

from benchmarks.coordinator import CoordinatorScale, measure_coordinator
from benchmarks.load.coordinator_process import SyntheticModel

pytestmark = pytest.mark.slow

SMALLEST = CoordinatorScale(
    model=SyntheticModel(megabytes=1.0),
    small=SyntheticModel(megabytes=0.1),
    devices=2,
    many=3,
    fleet=12,
    turns=1,
    runs=2,
    rounds=4,
)
NAMES = {
    "a round without training, 2 devices, 1 MB down and up": "at most 4.5",
    "the first round of a run, 2 devices, 1 MB down and up": "",
    "a bare script with the same TLS, hashing and fsync": "",
    "round / bare script": "at most 1.5",
    "the coordinator's peak memory, 2 devices": "at most 153",
    "the coordinator's peak memory, 3 devices": "at most 153",
    "peak memory, 3 / 2 devices": "",
    "the first round of a run, 12 devices, 0.1 MB down and up": "at most 10",
    "memory for each idle device": "at most 150",
    "restart after kill -9, 2 runs, 4 rounds": "at most 3",
}


@pytest.mark.usefixtures("forked_programs")
def test_every_figure_is_measured() -> None:
    figures = list(chain.from_iterable(measure_coordinator(SMALLEST)))
    assert {figure.name: figure.target for figure in figures} == NAMES
    assert all(figure.value is not None for figure in figures)
    assert all((figure.value or 0) > 0 for figure in figures if figure.name != "memory for each idle device")
