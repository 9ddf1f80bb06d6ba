"""Arrays of samples that are too large for memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from moonfed.bundle.manifest import InputSpec
from moonfed.bundle.target import NO_TARGET, class_target
from moonfed.data.data_set import DataSet
from moonfed.data.function import FunctionSource
from moonfed.data.npz import NpzSource
from moonfed.data.source import IGNORED, Source
from moonfed.data.storage import Storage, is_mapped, place_of
from moonfed.data.table import TableSource
from tests.support.device_samples import CLASSES, FEATURES, good_arrays, module
from tests.support.tables import GOOD, INPUT, write_csv


def read_both(source: Source, spec: InputSpec, directory: Path) -> tuple[DataSet, DataSet]:
    """Read samples to memory, and without room there."""
    target = class_target(CLASSES if spec is FEATURES else ("no", "yes"))
    return source.read(spec, target), source.read(spec, target, storage=Storage(directory, 0))


def test_rows_move_to_a_file_when_they_are_too_many(tmp_path: Path) -> None:
    storage = Storage(tmp_path / "files", 100)
    few, many = storage.rows("few", (2,), np.float32, 5), storage.rows("many", (2,), np.float32)
    for number in range(20):
        many.append(np.full((1, 2), number))
    few.append(np.ones((3, 2)))
    assert not is_mapped(few.array())
    assert few.array().tolist() == [[1, 1]] * 3
    found = many.array()
    assert place_of(found) == (tmp_path / "files" / "many", 0)
    assert place_of(found[3:]) == (tmp_path / "files" / "many", 24)
    assert place_of(found[:, :1]) is None, "it has gaps"
    assert found[:, 1].tolist() == list(range(20))


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_arrays_of_an_npz_file_stay_in_it_unless_they_are_compressed(npz: Path, tmp_path: Path, save: object) -> None:
    save(npz, **good_arrays())  # type: ignore[operator]
    small, large = read_both(NpzSource(npz), FEATURES, tmp_path / "files")
    place = place_of(large.inputs)
    assert place is not None
    assert place[0] == (npz if save is np.savez else tmp_path / "files" / "inputs")
    assert np.array_equal(large.inputs, small.inputs)
    assert np.array_equal(large.labels, small.labels)


def test_other_floating_point_numbers_are_converted_in_a_file(npz: Path, tmp_path: Path) -> None:
    np.savez(npz, inputs=np.arange(12.0).reshape(4, 3))
    samples = NpzSource(npz).read(FEATURES, NO_TARGET, labels=IGNORED, storage=Storage(tmp_path / "files", 0))
    assert place_of(samples.inputs) == (tmp_path / "files" / "inputs", 0)
    assert samples.inputs.dtype == np.float32
    assert samples.inputs.tolist() == np.arange(12.0).reshape(4, 3).tolist()


def test_rows_of_a_table_move_to_a_file(tmp_path: Path) -> None:
    small, large = read_both(TableSource(write_csv(tmp_path / "customers.csv", GOOD)), INPUT, tmp_path / "files")
    assert is_mapped(large.inputs)
    assert np.array_equal(large.inputs, small.inputs)
    assert np.array_equal(large.labels, small.labels)


def test_what_a_function_returns_moves_to_a_file_unless_it_is_mapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = np.arange(12, dtype=np.float32).reshape(4, 3)
    np.save(tmp_path / "own.npy", inputs)
    own = f"return np.load({str(tmp_path / 'own.npy')!r}, mmap_mode='r'), [0, 1, 1, 0]"
    for body, file in ((own, "own.npy"), ("return np.arange(12).reshape(4, 3) / np.float32(1), [0] * 4", "inputs")):
        source = FunctionSource(module(tmp_path, monkeypatch, body))
        samples = source.read(FEATURES, class_target(CLASSES), storage=Storage(tmp_path, 0))
        place = place_of(samples.inputs)
        assert place is not None
        assert place[0] == tmp_path / file
        assert np.array_equal(samples.inputs, inputs)
