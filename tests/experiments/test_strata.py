"""Groups of samples, and the samples for testing, of every kind of target."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from moonfed.bundle.target import TargetSpec, class_target
from moonfed.data.data_set import DataSet
from moonfed.experiments.strata import BINS, held_out, strata, stratum_names

VALUES = TargetSpec(kind="values", names=("a", "b"), shape=(2,))
FORECAST = TargetSpec(kind="values", names=("a",), shape=(3, 1))
LABELS = TargetSpec(kind="labels", names=("a", "b"), shape=(2,))
NONE = TargetSpec(kind="none", shape=(0,))


def samples(target: TargetSpec, targets: Any) -> DataSet:
    return DataSet(inputs=np.zeros((50, 2), np.float32), targets=targets, target=target)


def test_classes_and_tenths_of_the_first_value_are_groups() -> None:
    classes = np.arange(50) % 3
    assert (strata(samples(class_target(3), classes)) == classes).all()
    values = np.stack([np.arange(50.0)[::-1], np.zeros(50)], axis=1).astype(np.float32)
    assert np.bincount(strata(samples(VALUES, values))).tolist() == [5] * BINS
    assert strata(samples(VALUES, values))[0] == BINS - 1
    assert len(stratum_names(VALUES)) == BINS


def test_equal_values_are_in_one_group() -> None:
    assert len(set(strata(samples(VALUES, np.ones((50, 2), np.float32))).tolist())) == 1


@pytest.mark.parametrize(
    ("target", "targets"),
    [(LABELS, np.ones((50, 2), np.uint8)), (NONE, None), (NONE, np.zeros(50, np.uint8))],
    ids=["labels", "none", "usual"],
)
def test_other_samples_are_one_group_of_which_every_fifth_is_for_testing(target: TargetSpec, targets: Any) -> None:
    found = samples(target, targets)
    assert not strata(found).any()
    assert np.flatnonzero(held_out(found)).tolist() == list(range(0, 50, 5))
    assert stratum_names(target) == ("samples",)


def test_tests_have_values_of_every_size_and_the_end_of_a_forecast() -> None:
    values = np.random.default_rng(0).permutation(50).astype(np.float32)
    tested = held_out(samples(VALUES, np.stack([values, values], axis=1)))
    assert sorted(values[tested].tolist()) == list(range(0, 50, 5))
    tested = held_out(samples(FORECAST, np.zeros((50, 3, 1), np.float32)))
    assert np.flatnonzero(tested).tolist() == list(range(40, 50))


def test_anomalous_samples_are_for_testing_alone() -> None:
    anomalous = np.arange(50) >= 30
    tested = held_out(samples(NONE, anomalous.astype(np.uint8)))
    assert np.flatnonzero(tested).tolist() == [*range(0, 30, 5), *range(30, 50)]
