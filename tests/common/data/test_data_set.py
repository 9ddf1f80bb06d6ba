"""Samples from .npz files: reading, conversion and rejection by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from moonfed.bundle.manifest import InputSpec
from moonfed.bundle.target import NO_TARGET, class_target
from moonfed.data.data_set import DataSet, Inputs
from moonfed.data.npz import NpzSource
from moonfed.data.source import IGNORED
from moonfed.errors import InvalidInput, NotFound
from tests.support.refusals import refused

FEATURES = InputSpec(kind="features", shape=(30,))
IMAGE = InputSpec(kind="image", shape=(4, 4, 1))
CLASSES = ("a", "b", "c")
GOOD = np.zeros((2, 30), np.float32)


def saved(path: Path, **arrays: np.ndarray) -> Path:
    np.savez(path / "data.npz", **arrays)  # type: ignore[arg-type]
    return path / "data.npz"


def read_npz(path: Path, spec: InputSpec, classes: tuple[str, ...]) -> DataSet:
    return NpzSource(path).read(spec, class_target(classes))


def read_inputs(path: Path, spec: InputSpec) -> Inputs:
    return NpzSource(path).read(spec, NO_TARGET, labels=IGNORED).inputs


def test_samples_are_read_in_the_bundles_form(tmp_path: Path) -> None:
    pixels = np.arange(32, dtype=np.uint8).reshape(2, 4, 4, 1)
    samples = read_npz(saved(tmp_path, inputs=pixels, labels=np.array([2, 0], np.uint8)), IMAGE, CLASSES)
    assert np.array_equal(samples.inputs, pixels)
    assert samples.labels.tolist() == [2, 0]
    assert samples.labels.dtype == np.int64


def test_features_of_another_precision_are_converted(tmp_path: Path) -> None:
    doubles = np.linspace(0, 1, 60).reshape(2, 30)
    inputs = read_inputs(saved(tmp_path, inputs=doubles), FEATURES)
    assert inputs.dtype == np.float32
    assert np.allclose(inputs, doubles)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"labels": np.zeros(2, int)}, r"has no field 'inputs', which is needed; found \['labels'\]"),
        ({"inputs": GOOD}, r"has no field 'labels', which is needed; found \['inputs'\]"),
        ({"inputs": np.zeros((2, 30), int)}, "have dtype int64; the model takes float32"),
        ({"inputs": np.zeros((2, 29))}, r"have shape \[2, 29\]; the model takes \[N, 30\]"),
        ({"inputs": np.full((2, 30), np.nan)}, "hold NaN or infinite values"),
        ({"inputs": np.full((2, 30), 1e300)}, "hold NaN or infinite values"),
        ({"labels": np.zeros(2)}, "have dtype float64; they must be whole"),
        ({"labels": np.zeros(3, int)}, r"have shape \[3\]; there must be one for each of the 2 inputs"),
        (
            {"labels": np.eye(3)[:2]},
            r"shape \[2, 3\], with a single 1 in each row \(one-hot\), for which",
        ),
        ({"labels": np.array([[1, 0, 1], [0, 1, 0]])}, r"several ones in a row, which need task 'multilabel'"),
        ({"labels": np.array([[0, 2], [1, 1]])}, r"have shape \[2, 2\]; there must be one for each of the 2 inputs"),
        ({"labels": np.zeros((2, 1), int)}, r"have shape \[2, 1\]; there must be one"),
        ({"labels": np.zeros((2, 4, 4, 3))}, "like masks or images to reproduce, which need another task"),
        ({"labels": np.array([0, 3])}, "range from 0 to 3; the model has 3 classes, 0 to 2"),
        ({"labels": np.array([-1, 0])}, "range from -1 to 0"),
        ({"inputs": np.array([[object()]])}, "inputs of .* cannot be read"),
    ],
)
def test_arrays_that_do_not_fit_are_rejected_by_field(
    tmp_path: Path, arrays: dict[str, np.ndarray], message: str
) -> None:
    both = {"inputs": GOOD, "labels": np.zeros(2, int)} if "no field" not in message else {}
    with pytest.raises(InvalidInput, match=message):
        read_npz(saved(tmp_path, **(both | arrays)), FEATURES, CLASSES)


def test_pixels_are_never_converted(tmp_path: Path) -> None:
    with refused(InvalidInput, "dtype of inputs", "float32"):
        read_inputs(saved(tmp_path, inputs=np.zeros((2, 4, 4, 1), np.float32)), IMAGE)


def test_an_invalid_npz_file_is_rejected(tmp_path: Path) -> None:
    with refused(NotFound, "data"):
        read_inputs(tmp_path / "absent.npz", IMAGE)
    (tmp_path / "text.npz").write_text("no archive")
    with refused(InvalidInput, "npz"):
        read_inputs(tmp_path / "text.npz", IMAGE)
    np.save(tmp_path / "array.npy", np.zeros(3))
    with refused(InvalidInput, "arrays"):
        read_inputs(tmp_path / "array.npy", IMAGE)
