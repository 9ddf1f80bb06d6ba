"""The cache of decoded samples."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from moonfed.bundle.manifest import InputSpec
from moonfed.bundle.target import class_target
from moonfed.data.data_set import DataSet
from moonfed.data.folder import FolderSource
from moonfed.data.function import FunctionSource
from moonfed.data.images import DECODING
from moonfed.data.npz import NpzSource
from moonfed.edge_client.data.cache import Reader
from moonfed.errors import MoonfedError
from tests.support.device_samples import CLASSES, COLOUR, FEATURES, GREY, draw, good_arrays, module


def read_again(reader: Reader, spec: InputSpec = COLOUR) -> DataSet | None:
    return reader.read_if_changed(spec, class_target(CLASSES), lambda: None)


def test_decoded_images_are_kept_until_a_file_changes(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = Reader(FolderSource(pictures), tmp_path / "cache")
    first = read_again(reader)
    assert first is not None
    assert read_again(reader) is None

    def nothing(*_: object) -> MoonfedError:
        raise AssertionError("the cache should have been used")

    with monkeypatch.context() as patch:
        patch.setattr(FolderSource, "read", nothing)
        restarted = read_again(Reader(FolderSource(pictures), tmp_path / "cache"))
    assert restarted is not None
    assert np.array_equal(restarted.inputs, first.inputs)
    assert np.array_equal(restarted.labels, first.labels)

    draw(pictures / "dog" / "b.png", (9, 9, 9))
    os.utime(pictures / "dog" / "b.png", ns=(1, 1))
    changed = read_again(reader)
    assert changed is not None
    assert changed.inputs[2, 0, 0].tolist() == [9, 9, 9]
    draw(pictures / "dog" / "z.png", (8, 8, 8))
    added = read_again(reader)
    assert added is not None
    assert len(added) == 4
    assert len(list((tmp_path / "cache").iterdir())) == 1


def test_a_cache_of_another_version_of_decoding_is_not_used(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_again(Reader(FolderSource(pictures), tmp_path / "cache"))
    before = list((tmp_path / "cache").iterdir())
    monkeypatch.setattr("moonfed.edge_client.data.cache.DECODING", DECODING + 1)
    read_again(Reader(FolderSource(pictures), tmp_path / "cache"))
    assert list((tmp_path / "cache").iterdir()) != before


@pytest.mark.parametrize("name", ["broken.png", "größe.png", os.fsdecode(b"\xff.png")])
def test_what_was_left_out_is_reported_again_after_a_restart(
    pictures: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    (pictures / "cat" / name).write_bytes(b"no picture")
    draw(pictures / "loose.png", (1, 2, 3))
    for _ in range(2):
        read_again(Reader(FolderSource(pictures), tmp_path / "cache"))
    first, second = caplog.messages[:2], caplog.messages[2:]
    assert first == second
    assert sorted(sentence.split(" in ")[0] for sentence in first) == ["1 file", "1 of 4 files"]


def test_a_different_input_spec_is_decoded_again(pictures: Path, tmp_path: Path) -> None:
    reader = Reader(FolderSource(pictures), tmp_path / "cache")
    read_again(reader)
    grey = read_again(reader, GREY)
    assert grey is not None
    assert grey.inputs.shape == (3, 4, 6, 1)


def test_a_damaged_cache_is_rebuilt(pictures: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    read_again(Reader(FolderSource(pictures), tmp_path / "cache"))
    (cached,) = (tmp_path / "cache").iterdir()
    cached.write_bytes(cached.read_bytes()[:-30])
    samples = read_again(Reader(FolderSource(pictures), tmp_path / "cache"))
    assert samples is not None
    assert len(samples) == 3
    assert "rebuilding the damaged cache" in caplog.text


def test_an_npz_file_is_read_again_when_it_changes(npz: Path, tmp_path: Path) -> None:
    np.savez(npz, **good_arrays())
    reader = Reader(NpzSource(npz), tmp_path / "cache")
    assert read_again(reader, FEATURES) is not None
    assert read_again(reader, FEATURES) is None
    os.utime(npz, ns=(5, 5))
    assert read_again(reader, FEATURES) is not None
    assert not (tmp_path / "cache").exists()


def test_a_function_is_called_for_every_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = "lines.append(1); return np.zeros((len(lines), 3), np.float32), [0] * len(lines)"
    reader = Reader(FunctionSource(module(tmp_path, monkeypatch, body)), tmp_path / "cache")
    found = [read_again(reader, FEATURES) for _ in range(3)]
    assert [len(samples) for samples in found if samples is not None] == [1, 2, 3]
