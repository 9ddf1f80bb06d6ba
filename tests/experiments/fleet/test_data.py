"""The samples of all parties in one place."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from moonfed.experiments.datasets import SplitDataSet, split_arrays
from moonfed.experiments.fleet.data import Parts, digest_of, read_counts, write_parts

pytestmark = pytest.mark.slow

INPUTS = np.arange(14, dtype=np.float32).reshape(7, 2)
LABELS = np.array([0, 1, 2, 0, 1, 2, 0])
PARTS = [np.array([5, 0]), np.array([1, 2, 3]), np.array([6])]  # no party has the fifth sample


def dataset() -> SplitDataSet:
    return split_arrays("toy", ("a", "b", "c"), (INPUTS, LABELS), (INPUTS[:2] + 100, LABELS[:2]))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    write_parts(dataset(), PARTS, tmp_path / "data")
    return tmp_path / "data"


def test_each_party_has_its_own_samples_in_their_order(directory: Path) -> None:
    parts = Parts(directory)
    for party, indices in enumerate(PARTS, start=1):
        np.testing.assert_array_equal(parts.of(party).inputs, INPUTS[indices])
        np.testing.assert_array_equal(parts.of(party).targets, LABELS[indices])
    np.testing.assert_array_equal(parts.test.inputs, INPUTS[:2] + 100)


def test_samples_are_counted_by_party_and_class(directory: Path) -> None:
    np.testing.assert_array_equal(read_counts(directory), [[1, 0, 1], [1, 1, 1], [1, 0, 0]])


def test_a_partys_writes_reach_no_other(directory: Path) -> None:
    Parts(directory).of(1).inputs[:] = -1.0
    np.testing.assert_array_equal(Parts(directory).of(1).inputs, INPUTS[PARTS[0]])


def test_the_digest_is_of_the_samples_and_of_their_split(directory: Path, tmp_path: Path) -> None:
    write_parts(dataset(), PARTS, tmp_path / "again")
    write_parts(dataset(), [PARTS[0][::-1], *PARTS[1:]], tmp_path / "other")
    assert digest_of(tmp_path / "again") == digest_of(directory)
    assert digest_of(tmp_path / "other") != digest_of(directory)
