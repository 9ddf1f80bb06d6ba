"""Groups of samples, and the samples for testing, of every kind of target."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from moonfed.bundle.manifest import InputSpec
from moonfed.bundle.target import TargetSpec, class_target
from moonfed.data.data_set import DataSet, check_data_set
from moonfed.experiments.strata import BINS, strata, stratum_names, train_and_test

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
    assert train_and_test(found)[1].tolist() == list(range(0, 50, 5))
    assert stratum_names(target) == ("samples",)


def test_tests_have_values_of_every_size_and_the_end_of_a_forecast() -> None:
    values = np.random.default_rng(0).permutation(50).astype(np.float32)
    _, tested = train_and_test(samples(VALUES, np.stack([values, values], axis=1)))
    assert sorted(values[tested].tolist()) == list(range(0, 50, 5))
    inputs = np.lib.stride_tricks.sliding_window_view(values, 2)[:47, :, None]  # of the first 48 rows
    sample = InputSpec(kind="series", shape=(2, 1))
    trained, tested = train_and_test(check_data_set(inputs, np.zeros((47, 3, 1), np.float32), sample, FORECAST, "load"))
    assert (trained.tolist(), tested.tolist()) == (list(range(34)), list(range(38, 47)))


def test_anomalous_samples_are_for_testing_alone() -> None:
    anomalous = np.arange(50) >= 30
    _, tested = train_and_test(samples(NONE, anomalous.astype(np.uint8)))
    assert tested.tolist() == [*range(0, 30, 5), *range(30, 50)]
