"""Stratified subsets."""

import numpy as np

from moonfed.errors import InvalidInput
from moonfed.experiments.datasets import load_dataset
from moonfed.experiments.subsets import subset
from tests.support.refusals import refused


def test_a_subset_keeps_the_classes_shares() -> None:
    data = load_dataset("breast-cancer", None)
    small = subset(data, train_samples=100, test_samples=10, seed=1)
    counts, shares = np.bincount(small.train.labels), np.bincount(data.train.labels) / len(data.train.labels)
    assert (len(small.train.labels), len(small.test.labels)) == (100, 10)
    assert np.abs(counts - 100 * shares).max() < 1
    again, other = (subset(data, train_samples=100, test_samples=10, seed=seed) for seed in (1, 2))
    assert np.array_equal(small.train.inputs, again.train.inputs)
    assert not np.array_equal(small.train.inputs, other.train.inputs)
    rows = {row.tobytes() for row in data.train.inputs}
    assert len({row.tobytes() for row in small.train.inputs} & rows) == 100
    assert subset(data, train_samples=0, test_samples=0, seed=1).train.inputs.shape == data.train.inputs.shape


def test_a_subset_larger_than_the_data_is_rejected() -> None:
    with refused(InvalidInput, "train_samples", 456):
        subset(load_dataset("breast-cancer", None), train_samples=456, test_samples=0, seed=0)
