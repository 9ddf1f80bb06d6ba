"""Held-out samples: the split is complete, exact and stable."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from moonfed.bundle.target import NO_TARGET, UNKNOWN, class_target
from moonfed.data.data_set import DataSet
from moonfed.data.windows import find_windows
from moonfed.edge_client.data.split import split


def many(count: int) -> DataSet:
    generator = np.random.default_rng(1)
    inputs = generator.normal(size=(count, 3)).astype(np.float32)
    return DataSet(inputs=inputs, targets=np.arange(count), target=class_target(("a", "b")))


def test_the_split_is_whole_exact_and_the_same_each_time() -> None:
    training, holdout = split(many(50), 0.1)
    assert (len(training), len(holdout)) == (45, 5)
    assert sorted([*training.labels, *holdout.labels]) == list(range(50))
    again, _ = split(many(50), 0.1)
    assert np.array_equal(training.labels, again.labels)
    assert np.array_equal(training.inputs, many(50).inputs[training.labels])


def test_samples_that_are_added_do_not_move_the_others() -> None:
    _, before = split(many(200), 0.2)
    _, after = split(many(220), 0.2)
    assert len(set(before.labels) - set(after.labels)) < 15  # a new random split would move about 32 of 40


def test_the_end_of_a_series_is_held_out() -> None:
    windows = find_windows((), 30, 4, 2)
    training, holdout = split(replace(many(25), windows=windows), 0.2)
    assert (training.labels.tolist(), holdout.labels.tolist()) == (list(range(15)), list(range(20, 25)))


def test_nothing_is_held_out_unless_asked() -> None:
    samples = many(5)
    training, holdout = split(samples, 0.0)
    assert training is samples
    assert len(holdout) == 0
    assert holdout.inputs.shape == (0, 3)


@pytest.mark.parametrize("fraction", [0.0, 0.3])
def test_known_anomalies_are_neither_trained_on_nor_held_out(fraction: float) -> None:
    targets = np.array([0, 1, UNKNOWN, 0, 0] * 10, np.uint8)
    training, holdout = split(replace(many(50), targets=targets, target=NO_TARGET), fraction)
    assert (len(training), len(holdout)) == (40 - round(40 * fraction), round(40 * fraction))
    assert {*training.labels, *holdout.labels} == {0, UNKNOWN}
    unknown = replace(many(50), targets=None, target=NO_TARGET)
    assert sum(map(len, split(unknown, fraction))) == 50
