"""Doubts about columns of numbers that arrive in batches."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from moonfed.export.column_doubts import NumbersSeen, several_question


def seen(numbers: Sequence[float], size: int) -> NumbersSeen:
    found = NumbersSeen()
    for start in range(0, len(numbers), size):
        found.add(np.array(numbers[start : start + size], np.float64))
    return found


@pytest.mark.parametrize("size", [1, 3, 100])
def test_batches_change_nothing(size: int) -> None:
    assert seen(range(5, 20), size).consecutive
    assert seen([3, 1, 2, 9], size).all_differ()
    assert not seen([3, 1, 2, 3], size).all_differ()
    assert seen([5, 1, -999, 3, -999, 2, 5, 4], size).missing_code() == "-999"
    assert seen([9999, 2, 1, 3, 9999, 4], size).missing_code() == "9999"
    assert not seen([1, np.nan, 3], size).consecutive


@pytest.mark.parametrize(
    "numbers", [[], [7], [1, 99], [0, 1, 99], [97, 98, 99, 99], [-2, -1, -1, 3], [0, 1, 1000, 1000]]
)
def test_what_need_not_be_a_code_is_none(numbers: list[float]) -> None:
    assert seen(numbers, 2).missing_code() == ""


@pytest.mark.parametrize(
    ("numbers", "fine"),
    [([1764200000, 1764200060], True), ([1.0, 1.0], False), ([0, 1e-6], False), ([2**24, 2**24 + 4000], False)],
)
def test_differences_that_32_bits_cannot_hold_are_too_fine(numbers: list[float], fine: bool) -> None:
    assert seen(numbers, 1).too_fine() == fine


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        ({"cat", "dog", "cat;dog"}, "cat;dog"),
        ({"cat", "dog", "dog | cat", "bird"}, "dog | cat"),
        ({"['cat', 'dog']", "['cat']"}, "['cat', 'dog']"),
        ({"[1, 0, 1]", "[0, 1, 0]"}, "[0, 1, 0]"),
        ({"cat", "bird, other"}, ""),
        ({"(0, 10]", "(10, 20]", "[20, 30]"}, ""),
        ({"North, East", "North, West"}, ""),
        ({"A+", "A", "AB"}, ""),
    ],
    ids=["semicolon", "bar", "list", "multi-hot", "comma-in-a-name", "ranges", "shared-part", "sign"],
)
def test_cells_that_name_several_classes_are_told_from_names_with_separators(names: set[str], shown: str) -> None:
    expected = f"names several classes in a cell, such as {shown!r}" if shown else ""
    assert several_question(names) == expected
