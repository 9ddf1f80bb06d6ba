"""Model files read and written slice by slice, against whole vectors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from moonfed.blobs.tensors import header_bytes
from moonfed.coordinator.aggregation.model_files import (
    indices_by_kind,
    is_parameter,
    ranges,
    read_elements,
    weighted_sum,
    writers,
)
from moonfed.errors import Corrupt, InvalidInput
from tests.support.aggregation_rounds import PARAMETERS, SIZE, SPECS
from tests.support.refusals import refused

VALUES = np.arange(SIZE, dtype=np.float32) - 30


def write(path: Path, values: np.ndarray = VALUES) -> Path:
    path.write_bytes(header_bytes(SPECS) + values.astype("<f4").tobytes())
    return path


@pytest.mark.parametrize(
    ("size", "slice_elements", "expected"),
    [(0, 4, []), (3, 4, [(0, 3)]), (4, 4, [(0, 4)]), (9, 4, [(0, 4), (4, 8), (8, 9)])],
)
def test_ranges_cover_every_element_once(size: int, slice_elements: int, expected: list[tuple[int, int]]) -> None:
    assert list(ranges(size, slice_elements)) == expected


@pytest.mark.parametrize(("start", "stop"), [(0, SIZE), (0, 1), (7, 96), (SIZE - 1, SIZE), (5, 5)])
def test_elements_are_read_from_the_end_of_the_file(tmp_path: Path, start: int, stop: int) -> None:
    np.testing.assert_array_equal(read_elements(write(tmp_path / "m"), SIZE, start, stop), VALUES[start:stop])


def test_a_file_that_shrinks_while_it_is_read_is_corrupt(tmp_path: Path) -> None:
    path = tmp_path / "m"
    path.write_bytes(b"\0" * 40)
    with pytest.raises(Corrupt, match=r"m ended after 40 of 48 bytes"):
        read_elements(path, 10, 0, 12)


def test_sums_are_in_float64_and_a_weight_may_be_one_for_each_element(tmp_path: Path) -> None:
    paths = [write(tmp_path / "a"), write(tmp_path / "b", np.full(SIZE, 1e8, np.float32))]
    of_each = np.linspace(0, 1, 20)
    found = weighted_sum(paths, [2.0, of_each], SIZE, 10, 30)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, 2.0 * VALUES[10:30] + of_each * 1e8, rtol=1e-15)


@pytest.mark.parametrize(("start", "stop"), [(0, SIZE), (80, 90), (100, SIZE), (0, 85), (85, 107)])
def test_parameters_and_statistics_are_told_apart_in_any_slice(start: int, stop: int) -> None:
    expected = PARAMETERS[start:stop]
    np.testing.assert_array_equal(is_parameter(SPECS, start, stop), expected)
    found = {kind: np.arange(start, stop)[where] for kind, where in indices_by_kind(SPECS, start, stop)}
    assert set(found) == {"parameter" if parameter else "statistic" for parameter in expected}
    for kind, elements in found.items():
        np.testing.assert_array_equal(elements, np.arange(start, stop)[expected == (kind == "parameter")])


def test_slices_are_written_to_each_roles_file(tmp_path: Path) -> None:
    with writers({"model": tmp_path / "m", "momentum": tmp_path / "v"}, SPECS) as open_files:
        for start, stop in ranges(SIZE, 50):
            open_files["model"].write(VALUES[start:stop].astype(np.float64))
            open_files["momentum"].write(2.0 * VALUES[start:stop].astype(np.float64))
    assert (tmp_path / "m").read_bytes() == write(tmp_path / "whole").read_bytes()
    np.testing.assert_array_equal(read_elements(tmp_path / "v", SIZE, 0, SIZE), 2 * VALUES)


@pytest.mark.parametrize("value", [np.nan, -np.inf, 1e39])
def test_a_value_that_float32_cannot_hold_is_rejected(tmp_path: Path, value: float) -> None:
    with (
        writers({"model": tmp_path / "m"}, SPECS) as open_files,
        refused(InvalidInput, "values"),
    ):
        open_files["model"].write(np.array([1.0, value]))
