"""Robust aggregation, compared with independent references in numpy on whole models in float64."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from moonfed.control.run_settings import RunSettings
from moonfed.coordinator.aggregation.robust.config import build_reducer
from moonfed.coordinator.aggregation.robust.reducers import REDUCERS
from moonfed.coordinator.aggregation.robust.reducers.reducer import Reducer
from moonfed.registry import find_problem
from tests.support.aggregation_rounds import PARAMETERS, SIZE, robust_settings
from tests.support.robust_rounds import F64, NAMES, ROBUST, START, assert_close, rounds, updates


@pytest.mark.parametrize("name", REDUCERS)
def test_a_reducers_entry_is_complete(name: str) -> None:
    assert find_problem(name, REDUCERS[name], Reducer) == ""


def test_no_two_reducers_give_the_same_model(tmp_path: Path) -> None:
    """A reducer that falls through to the mean, or to another reducer, would."""
    models, settings = updates(4, 9), [robust_settings(), *ROBUST]
    found = [rounds(tmp_path / robust.reducer, robust).next(models, [1] * 9) for robust in settings]
    for i, j in itertools.combinations(range(len(found)), 2):
        for kind in (PARAMETERS, ~PARAMETERS):
            assert np.abs(found[i] - found[j])[kind].max() > 1e-3, (settings[i].reducer, settings[j].reducer)


@pytest.mark.parametrize("robust", [robust_settings(), *ROBUST], ids=["mean", *NAMES])
def test_a_reducer_declares_whether_it_ignores_weights(tmp_path: Path, robust: RunSettings) -> None:
    models = updates(4, 9)
    equal, unequal = (
        rounds(tmp_path / str(heaviest), robust).next(models, [*[100] * 8, heaviest]) for heaviest in (100, 10000)
    )
    assert np.array_equal(equal, unequal) == build_reducer(robust).ignores_weights


@pytest.mark.parametrize("robust", ROBUST, ids=NAMES)
def test_updates_that_agree_are_kept_and_nobody_is_reported(tmp_path: Path, robust: RunSettings) -> None:
    models = np.repeat(updates(1, 1), 7, axis=0)
    played = rounds(tmp_path, robust)
    assert_close(played.next(models, [3, 1, 4, 1, 5, 9, 2]), models[0])
    if robust.reducer != "multi_krum":  # which leaves out as many as it is told to
        assert played.incidents == ()


POISONS: dict[str, Callable[[F64], F64]] = {
    "scaled": lambda models: START + 1000 * (models - START),
    "flipped": lambda models: START - 1000 * (models - START),
    "immense": lambda models: np.full_like(models, 3e38),
    "opposite": lambda models: np.stack([np.full(SIZE, 3e38), np.full(SIZE, -3e38)])[: len(models)],
}


@pytest.mark.parametrize("robust", ROBUST, ids=NAMES)
@pytest.mark.parametrize("poison", POISONS)
@pytest.mark.parametrize("devices", [7, 10])
def test_two_poisoned_updates_do_not_move_a_robust_reducer(
    tmp_path: Path, robust: RunSettings, poison: str, devices: int
) -> None:
    honest = updates(devices, devices, spread=0.1)
    models = honest.copy()
    models[[1, 4]] = POISONS[poison](honest[[1, 4]])
    played = rounds(tmp_path, robust)
    found = played.next(models, [100] * devices)
    centre = np.delete(honest, [1, 4], axis=0).mean(axis=0)
    farthest = np.linalg.norm(honest - centre, axis=1).max()
    assert np.linalg.norm(found - centre) < farthest, "no farther from the honest mean than an honest device"
    assert {"cam-1", "cam-4"} <= {told.device for told in played.incidents}
    without = rounds(tmp_path / "mean", robust_settings()).next(models, [100] * devices)
    assert np.linalg.norm(without - centre) > 20 * farthest or poison == "opposite"
