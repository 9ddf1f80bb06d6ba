"""Windows of series, split in time: no row is on both sides, and every series that is long enough is on both."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from moonfed.data.windows import Windows, find_windows, windows_of_one_series


def rows_of(windows: Windows, chosen: np.ndarray) -> set[int]:
    return set(windows.take(chosen).covered.tolist())


@pytest.mark.parametrize("sizes", [(40,), (60, 30, 90), (60, 4, 8, 9, 90)], ids=["one", "three", "short ones"])
def test_the_end_of_each_series_is_for_testing_and_shares_no_row(sizes: Sequence[int]) -> None:
    groups = np.random.default_rng(0).permutation(np.repeat(np.arange(len(sizes)), sizes))
    windows = find_windows(list(map(str, groups)), len(groups), 5, 3)
    trained, tested = windows.split(0.2)
    assert not rows_of(windows, trained) & rows_of(windows, tested)
    assert abs(len(tested) - 0.2 * len(windows.starts)) <= max(1, min(sizes))
    ends = [np.flatnonzero(groups == name)[-1] for name, size in enumerate(sizes) if size >= 30]
    assert set(ends) <= rows_of(windows, tested)
    shared = set(range(len(windows.starts))) - set(trained) - set(tested)
    assert len(shared) == 7 * sum(size >= 30 for size in sizes)  # all of the windows that cross a boundary


def test_a_series_that_is_too_short_to_be_cut_is_on_one_side() -> None:
    alone = find_windows((), 12, 5, 3)
    assert [len(side) for side in alone.split(0.2)] == [5, 0]
    many = find_windows([str(row // 12) for row in range(120)], 120, 5, 3)
    trained, tested = many.split(0.2)
    assert (len(trained), len(tested)) == (40, 10)
    assert not rows_of(many, trained) & rows_of(many, tested)


@pytest.mark.parametrize("step", [1, 3, 8])
def test_arrays_show_how_far_their_windows_are_apart(step: int) -> None:
    values = np.random.default_rng(0).normal(size=(200, 2)).astype(np.float32)
    inputs = np.stack([values[start : start + 5] for start in range(0, 150, step)])
    windows = windows_of_one_series(inputs, 3)
    assert np.array_equal(values[windows.order[windows.starts]], inputs[:, 0])
    trained, tested = windows.split(0.2)
    assert tested[-1] == len(inputs) - 1
    assert len(inputs) - len(trained) - len(tested) == 7 // step
    assert len(windows_of_one_series(inputs[:1], 3).split(0.2)[0]) == 1
    assert len(windows_of_one_series(inputs[:0], 3).split(0.2)[0]) == 0
