"""Changes of models measured slice by slice, against whole models in float64."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from moonfed.blobs.schema import Kind
from moonfed.blobs.tensors import header_bytes
from moonfed.coordinator.aggregation.robust.model_changes import ModelChanges, PerKind
from tests.support.aggregation_rounds import PARAMETERS, SIZE, SPECS

CHANCE = np.random.default_rng(5)
START, MODELS = CHANCE.normal(size=SIZE).astype("<f4"), CHANCE.normal(size=(4, SIZE)).astype("<f4")
CHANGES = MODELS.astype(np.float64) - START
COLUMNS: dict[Kind, npt.NDArray[np.bool_]] = {"parameter": PARAMETERS, "statistic": ~PARAMETERS}
SLICES = [1, 100, 1 << 20]  # elements of all four devices together


@pytest.fixture
def changes(tmp_path: Path) -> ModelChanges:
    paths = []
    for name, values in {"start": START, **{f"cam-{number}": model for number, model in enumerate(MODELS)}}.items():
        paths.append(tmp_path / name)
        paths[-1].write_bytes(header_bytes(SPECS) + values.tobytes())
    return ModelChanges(global_model=paths[0], models=paths[1:], specs=SPECS)


def test_the_more_devices_the_shorter_is_a_slice(changes: ModelChanges) -> None:
    assert next(changes.short_ranges(40)) == (0, 10)
    assert next(changes.short_ranges(3)) == (0, 1), "at least one element"
    assert list(changes.short_ranges(1 << 20)) == [(0, SIZE)]


def test_a_block_has_each_devices_change(changes: ModelChanges) -> None:
    np.testing.assert_array_equal(changes.block(80, 100), CHANGES[:, 80:100])


@pytest.mark.parametrize("slice_elements", SLICES)
def test_norms_and_inner_products_are_of_parameters_and_of_statistics(
    changes: ModelChanges, slice_elements: int
) -> None:
    squares, grams = changes.squared_norms(slice_elements), changes.grams(slice_elements)
    assert set(squares) == set(grams) == set(COLUMNS)
    for kind, columns in COLUMNS.items():
        part = CHANGES[:, columns]
        np.testing.assert_allclose(grams[kind], part @ part.T, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(squares[kind], (part**2).sum(axis=1), rtol=1e-12)


def test_no_bit_of_a_norm_depends_on_the_other_devices(changes: ModelChanges) -> None:
    """A private round's sum must move by what one device adds, and by nothing else."""
    of_all = changes.squared_norms(20)
    for device, path in enumerate(changes.models):
        for kind, squares in replace(changes, models=[path]).squared_norms(20).items():
            assert squares.tolist() == [of_all[kind][device]]
    assert all(len(squares) == 0 for squares in replace(changes, models=[]).squared_norms(20).values())


def test_only_scaled_changes_are_recomputed(changes: ModelChanges) -> None:
    scales: PerKind = {
        "parameter": np.array([1.0, 0.5, 1.0, 0.0]),
        "statistic": np.array([1.0, 1.0, 0.25, 0.0]),
    }
    found = changes.clipped(scales, 0, SIZE)
    expected = np.where(PARAMETERS, scales["parameter"][:, None], scales["statistic"][:, None]) * CHANGES + START
    np.testing.assert_array_equal(found[0], MODELS[0])
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(found[3], START)
