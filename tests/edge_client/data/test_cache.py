"""The cache of decoded samples."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from moonfed.bundle.manifest import InputSpec
from moonfed.bundle.target import class_target
from moonfed.data.data_set import DataSet
from moonfed.data.folder import FolderSource
from moonfed.data.function import FunctionSource
from moonfed.data.images import DECODING
from moonfed.data.npz import NpzSource
from moonfed.data.storage import place_of
from moonfed.edge_client.data.cache import Reader
from moonfed.errors import MoonfedError, ResourceExhausted
from tests.support.device_samples import CLASSES, COLOUR, FEATURES, GREY, draw, good_arrays, module
from tests.support.refusals import refused


def read_again(reader: Reader, spec: InputSpec = COLOUR, room: int | None = None) -> DataSet | None:
    return reader.read_if_changed(spec, class_target(CLASSES), lambda: None, room)


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
    cached = next((tmp_path / "cache").glob("*/inputs"))
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


def test_images_that_are_too_large_for_memory_are_decoded_to_a_file_once(pictures: Path, tmp_path: Path) -> None:
    expected = read_again(Reader(FolderSource(pictures), tmp_path / "small"))
    assert expected is not None
    cache = tmp_path / "cache"
    first = read_again(Reader(FolderSource(pictures), cache), room=100)
    again = read_again(Reader(FolderSource(pictures), cache), room=100)
    for samples in (first, again):
        assert samples is not None
        (file,) = cache.glob("*/inputs")
        assert place_of(samples.inputs) == (file, 0)
        assert np.array_equal(samples.inputs, expected.inputs)
        assert np.array_equal(samples.labels, expected.labels)
    assert len(list(cache.iterdir())) == 1


def test_an_interrupted_decoding_leaves_nothing_that_is_used(pictures: Path, tmp_path: Path) -> None:
    def stop() -> None:
        raise KeyboardInterrupt

    reader, building = Reader(FolderSource(pictures), tmp_path / "cache"), tmp_path / "cache" / "building"
    with pytest.raises(KeyboardInterrupt):
        reader.read_if_changed(COLOUR, class_target(CLASSES), stop, 0)
    assert not building.exists()
    building.mkdir(parents=True)  # as a killed process leaves it
    (building / "inputs").write_bytes(b"half")
    samples = read_again(reader, room=0)
    assert samples is not None
    assert len(samples) == 3
    assert [entry.name for entry in (tmp_path / "cache").iterdir()] != ["building"]


def test_a_cache_goes_when_the_data_fit_elsewhere(pictures: Path, npz: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    read_again(Reader(FolderSource(pictures), cache), room=0)
    np.savez(npz, **good_arrays())
    samples = read_again(Reader(NpzSource(npz), cache), FEATURES, room=0)
    assert samples is not None
    assert place_of(samples.inputs) is not None
    assert list(cache.iterdir()) == []


def test_too_small_a_disk_is_found_before_decoding(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    read_again(Reader(FolderSource(pictures), cache), GREY, room=0)
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=100))
    with refused(ResourceExhausted, "free disk", 100) as error:
        read_again(Reader(FolderSource(pictures), cache), room=0)
    assert "216 bytes" in str(error.value)
    assert list(cache.iterdir()) == [], "what was cached is deleted first"
