"""The weighted mean, against numpy on whole models in float64."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies
from hypothesis import settings as hypothesis_settings

from coordinator.aggregation import Contribution, weighted_mean
from moonfed.tensors import TensorSpec, Vector, header_bytes, model_size, split

SPECS = (
    TensorSpec("a.weight", (17, 5), "parameter"),
    TensorSpec("b.running_mean", (11,), "statistic"),
    TensorSpec("b.running_var", (11,), "statistic"),
    TensorSpec("c", (), "parameter"),
)
SIZE = model_size(SPECS)


def write(path: Path, values: Vector, padding: int = 0) -> Path:
    """A model file; another writer may pad its header."""
    header = header_bytes(SPECS)
    text = header[8:] + b" " * padding
    path.write_bytes(len(text).to_bytes(8, "little") + text + values.astype("<f4").tobytes())
    return path


def reduced(contributions: list[Contribution], slice_elements: int = 1 << 20) -> Vector:
    return np.concatenate(list(weighted_mean(contributions, SPECS, slice_elements=slice_elements)))


def contributions(directory: Path, count: int, seed: int) -> tuple[list[Contribution], Vector, list[int]]:
    chance = np.random.default_rng(seed)
    values = (chance.normal(size=(count, SIZE)) * 10.0 ** chance.integers(-6, 6, size=(count, 1))).astype(np.float32)
    samples = [int(number) for number in chance.integers(1, 100_000, size=count)]
    paths = [write(directory / f"{number}", values[number], padding=8 * number) for number in range(count)]
    found = [Contribution(path=path, samples=number) for path, number in zip(paths, samples, strict=True)]
    return found, values, samples


@pytest.mark.parametrize("count", [1, 2, 7])
def test_parameters_and_statistics_are_the_mean_weighted_by_samples(tmp_path: Path, count: int) -> None:
    updates, values, samples = contributions(tmp_path, count, seed=count)
    expected = np.average(values.astype(np.float64), axis=0, weights=np.array(samples, dtype=np.float64))
    result = reduced(updates)
    assert result.dtype == np.float32
    np.testing.assert_allclose(result, expected, rtol=1e-6, atol=1e-12)
    statistics = split(result, SPECS)["b.running_var"]
    np.testing.assert_allclose(statistics, expected[SIZE - 12 : SIZE - 1], rtol=1e-6, atol=1e-12)


@hypothesis_settings(max_examples=25, deadline=None)
@given(slice_elements=strategies.integers(1, SIZE + 3))
def test_slices_change_nothing(tmp_path_factory: pytest.TempPathFactory, slice_elements: int) -> None:
    updates, _, _ = contributions(tmp_path_factory.mktemp("updates"), 3, seed=1)
    assert reduced(updates, slice_elements).tobytes() == reduced(updates).tobytes()


def test_sums_are_float64(tmp_path: Path) -> None:
    """In float32, one in a hundred million would be lost."""
    large, small = np.full(SIZE, 1e8, np.float32), np.full(SIZE, 1.0, np.float32)
    minus = np.full(SIZE, -1e8, np.float32)
    updates = [
        Contribution(path=write(tmp_path / str(number), values), samples=1)
        for number, values in enumerate((large, small, minus))
    ]
    np.testing.assert_array_equal(reduced(updates), np.float32(1 / 3))


def test_the_mean_of_equal_models_is_that_model(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=SIZE).astype(np.float32)
    updates = [Contribution(path=write(tmp_path / str(n), values), samples=n + 1) for n in range(5)]
    np.testing.assert_array_equal(reduced(updates), values)


def test_the_largest_numbers_do_not_overflow(tmp_path: Path) -> None:
    largest = np.full(SIZE, np.finfo(np.float32).max, np.float32)
    updates = [Contribution(path=write(tmp_path / str(n), largest), samples=10_000_000) for n in range(3)]
    np.testing.assert_array_equal(reduced(updates), largest)
