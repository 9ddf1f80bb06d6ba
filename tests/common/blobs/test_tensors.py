"""Model files: layout, rejection, and agreement with the safetensors library."""

import json
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st

from moonfed.blobs.tensors import TensorSpec, file_size, model_size, open_model, require_finite, split, write_model
from moonfed.errors import InvalidInput, SchemaMismatch
from tests.support.refusals import refused

SPECS = (
    TensorSpec("encoder.bias", (3,), "parameter"),
    TensorSpec("encoder.weight", (3, 2), "parameter"),
    TensorSpec("norm.mean", (), "statistic"),
)
VALUES = {
    "encoder.bias": np.array([1, 2, 3], dtype=np.float32),
    "encoder.weight": np.arange(6, dtype=np.float32).reshape(3, 2),
    "norm.mean": np.array(0.5, dtype=np.float32),
}


def save(path: Path, tensors: dict[str, np.ndarray]) -> Path:
    safetensors.numpy.save_file(tensors, path)
    return path


def test_a_file_of_the_safetensors_library_is_read(tmp_path: Path) -> None:
    vector = open_model(save(tmp_path / "m", VALUES), SPECS)
    assert vector.tolist() == [1, 2, 3, 0, 1, 2, 3, 4, 5, 0.5]
    assert split(vector, SPECS)["encoder.weight"].tolist() == [[0, 1], [2, 3], [4, 5]]


def test_the_safetensors_library_reads_our_file(tmp_path: Path) -> None:
    slices = [np.array([1, 2, 3, 0], dtype=np.float32), np.array([1, 2, 3, 4, 5, 0.5], dtype=np.float32)]
    write_model(tmp_path / "m", SPECS, slices)
    loaded = safetensors.numpy.load_file(tmp_path / "m")
    assert {name: value.tolist() for name, value in loaded.items()} == {n: v.tolist() for n, v in VALUES.items()}
    assert (tmp_path / "m").stat().st_size == file_size(SPECS)


@given(st.dictionaries(st.text(min_size=1, max_size=8), st.lists(st.integers(0, 3), max_size=3), max_size=6))
def test_any_names_and_shapes_survive_a_round_trip(
    tmp_path_factory: pytest.TempPathFactory, shapes: dict[str, list[int]]
) -> None:
    shapes.pop("__metadata__", None)
    if any("\ud800" <= letter <= "\udfff" for name in shapes for letter in name):
        return
    specs = tuple(TensorSpec(name, tuple(shape), "parameter") for name, shape in sorted(shapes.items()))
    path = tmp_path_factory.mktemp("models") / "m"
    vector = np.arange(model_size(specs), dtype=np.float32)
    write_model(path, specs, [vector])
    assert np.array_equal(open_model(path, specs), vector)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"encoder.bias": None}, ("tensor", "encoder.bias")),
        ({"extra": np.zeros(2, dtype=np.float32)}, ("tensor", "extra")),
        ({"encoder.bias": np.ones(1, dtype=np.float32)}, ("tensor", "encoder.bias")),
        ({"encoder.weight": np.ones((2, 3), dtype=np.float32)}, ("tensor", "encoder.weight")),
        ({"norm.mean": np.zeros(1, dtype=np.float32)}, ("tensor", "norm.mean")),
        ({"encoder.bias": np.ones(3, dtype=np.float64)}, ("tensor", "encoder.bias")),
        ({"encoder.bias": np.ones(3, dtype=np.float16)}, ("tensor", "encoder.bias")),
    ],
)
def test_a_model_that_does_not_match_is_rejected_by_name(
    tmp_path: Path, change: dict[str, np.ndarray | None], named: tuple[str, object]
) -> None:
    tensors = {name: value for name, value in (VALUES | change).items() if value is not None}
    with refused(SchemaMismatch, *named):
        open_model(save(tmp_path / "m", tensors), SPECS)


def header_file(path: Path, header: bytes, body: bytes = b"\0" * 40) -> Path:
    path.write_bytes(len(header).to_bytes(8, "little") + header + body)
    return path


def entries(**changes: object) -> dict[str, object]:
    return {
        "encoder.bias": {"dtype": "F32", "shape": [3], "data_offsets": [0, 12]},
        "encoder.weight": {"dtype": "F32", "shape": [3, 2], "data_offsets": [12, 36]},
        "norm.mean": {"dtype": "F32", "shape": [], "data_offsets": [36, 40]},
    } | changes


@pytest.mark.parametrize(
    "header",
    [
        b"not json",
        b"[]",
        b"{" * 60_000,
        b"[" * 60_000,
        b'{"encoder.bias": 3}',
        json.dumps(entries(**{"norm.mean": {"dtype": "F32", "shape": [], "data_offsets": [0, 4]}})).encode(),
        json.dumps(entries(**{"norm.mean": {"dtype": "F32", "shape": [], "data_offsets": [40, 44]}})).encode(),
        b'{"encoder.bias": {}, "encoder.bias": {}}',
    ],
)
def test_a_malformed_header_is_rejected(tmp_path: Path, header: bytes) -> None:
    with pytest.raises(SchemaMismatch):
        open_model(header_file(tmp_path / "m", header), SPECS)


@pytest.mark.parametrize("body", [39, 41, 0])
def test_a_body_of_the_wrong_length_is_rejected(tmp_path: Path, body: int) -> None:
    path = header_file(tmp_path / "m", json.dumps(entries()).encode(), b"\0" * body)
    with pytest.raises(SchemaMismatch, match="bytes"):
        open_model(path, SPECS)


@pytest.mark.parametrize("length", [0, 1, 1 << 17, 1 << 40])
def test_an_absurd_header_length_is_rejected(tmp_path: Path, length: int) -> None:
    (tmp_path / "m").write_bytes(length.to_bytes(8, "little") + b"{}" + b" " * min(length, 1 << 18))
    with pytest.raises(SchemaMismatch, match="header"):
        open_model(tmp_path / "m", SPECS)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_is_rejected_by_tensor(bad: float) -> None:
    vector = np.zeros(10, dtype=np.float32)
    require_finite(vector, SPECS)
    vector[8] = bad
    with refused(SchemaMismatch, "tensor", "encoder.weight"):
        require_finite(vector, SPECS)


def test_writing_too_few_elements_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="9 elements"):
        write_model(tmp_path / "m", SPECS, [np.zeros(9, dtype=np.float32)])
