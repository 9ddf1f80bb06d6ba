"""Arrays of .npz files, and every way in which they can be wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from moonfed.data.npz import NpzSource
from moonfed.errors import InvalidInput
from tests.support.device_samples import good_arrays, read
from tests.support.refusals import refused


def test_an_npz_file_is_read(npz: Path) -> None:
    np.savez(npz, **good_arrays())
    samples = read(NpzSource(npz))
    assert samples.inputs.dtype == np.float32
    assert samples.labels.dtype == np.int64
    assert samples.labels.tolist() == [0, 1, 1, 0]
    assert samples.inputs[1].tolist() == [3, 4, 5]


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("inputs", np.zeros((4, 3), int), "inputs of .* have dtype int64; the model takes float32"),
        ("inputs", np.zeros((4, 2), np.float32), r"have shape \[4, 2\]; the model takes \[N, 3\]"),
        ("inputs", np.zeros((4, 3, 1), np.float32), r"have shape \[4, 3, 1\]; the model takes \[N, 3\]"),
        ("inputs", np.float32(1), r"have shape \[\]; the model takes"),
        ("inputs", np.full((4, 3), np.nan, np.float32), "hold NaN"),
        ("labels", np.array([0.0, 1, 1, 0]), "labels of .* have dtype float64; they must be whole numbers"),
        ("labels", np.array([0, 1]), r"labels of .* have shape \[2\]"),
        ("labels", np.array([[0], [1], [1], [0]]), r"have shape \[4, 1\]"),
        ("labels", np.array([0, 1, 2, 0]), "range from 0 to 2; the model has 2 classes, 0 to 1"),
        ("labels", np.array([0, -1, 1, 0]), "range from -1 to 1"),
        ("labels", np.array([None, 1, 1, 0]), "cannot be read"),
    ],
)
def test_a_wrong_array_is_named(npz: Path, field: str, value: object, message: str) -> None:
    np.savez(npz, **(good_arrays() | {field: value}))
    with pytest.raises(InvalidInput, match=message):
        read(NpzSource(npz))


@pytest.mark.parametrize("field", ["inputs", "labels"])
def test_a_missing_array_is_named(npz: Path, field: str) -> None:
    arrays = good_arrays()
    del arrays[field]
    np.savez(npz, **arrays)
    with pytest.raises(InvalidInput, match=f"has no field '{field}'"):
        read(NpzSource(npz))


def test_an_invalid_npz_file_is_rejected(npz: Path) -> None:
    npz.write_bytes(b"not at all")
    with refused(InvalidInput, "npz"):
        read(NpzSource(npz))
    with npz.open("wb") as file:
        np.save(file, np.zeros(3))
    with refused(InvalidInput, "arrays"):
        read(NpzSource(npz))


def test_a_damaged_npz_file_is_rejected(npz: Path) -> None:
    np.savez(npz, inputs=np.zeros((1000, 3), np.float32), labels=np.zeros(1000, np.int64))
    content = bytearray(npz.read_bytes())
    content[5000] ^= 1
    npz.write_bytes(content)
    with pytest.raises(InvalidInput, match="cannot be read"):
        read(NpzSource(npz))
