"""Samples from files and functions, and every way in which they can be wrong."""

from __future__ import annotations

import importlib.util
import logging
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from moonfed.edge_client.data.folder import FolderSource
from moonfed.edge_client.data.function import FunctionSource
from moonfed.edge_client.data.npz import NpzSource
from moonfed.edge_client.data.samples import split
from moonfed.edge_client.data.source import Reader, open_source
from moonfed.errors import InvalidInput, MoonfedError, NotFound
from moonfed.manifest import InputSpec
from moonfed.samples import RawSamples

FEATURES = InputSpec(kind="features", shape=(3,))
COLOUR = InputSpec(kind="image", shape=(4, 6, 3))
GREY = InputSpec(kind="image", shape=(4, 6, 1))
CLASSES = ("cat", "dog")


def read(source: object, spec: InputSpec = FEATURES) -> RawSamples:
    return source.read(spec, CLASSES, lambda: None)  # type: ignore[attr-defined, no-any-return]


@pytest.fixture
def npz(tmp_path: Path) -> Path:
    return tmp_path / "samples.npz"


def good_arrays() -> dict[str, Any]:
    return {"inputs": np.arange(12, dtype=np.float32).reshape(4, 3), "labels": np.array([0, 1, 1, 0], dtype=np.uint8)}


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
        ("inputs", np.zeros((4, 3), int), "inputs of .* have dtype int64; the bundle takes float32"),
        ("inputs", np.zeros((4, 2), np.float32), r"have shape \[4, 2\]; the bundle takes \[N, 3\]"),
        ("inputs", np.zeros((4, 3, 1), np.float32), r"have shape \[4, 3, 1\]; the bundle takes \[N, 3\]"),
        ("inputs", np.float32(1), r"have shape \[\]; the bundle takes"),
        ("inputs", np.full((4, 3), np.nan, np.float32), "hold NaN or infinite values"),
        ("labels", np.array([0.0, 1, 1, 0]), "labels of .* have dtype float64; they must be whole numbers"),
        ("labels", np.array([0, 1]), r"labels of .* have shape \[2\]; there must be one for each of the 4 inputs"),
        ("labels", np.array([[0], [1], [1], [0]]), r"have shape \[4, 1\]"),
        ("labels", np.array([0, 1, 2, 0]), "reach from 0 to 2; the bundle has 2 classes, 0 to 1"),
        ("labels", np.array([0, -1, 1, 0]), "reach from -1 to 1"),
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
    with pytest.raises(InvalidInput, match=r"is not an \.npz file"):
        read(NpzSource(npz))
    with npz.open("wb") as file:
        np.save(file, np.zeros(3))
    with pytest.raises(InvalidInput, match="holds a single array"):
        read(NpzSource(npz))


def test_a_damaged_npz_file_is_rejected(npz: Path) -> None:
    np.savez(npz, inputs=np.zeros((1000, 3), np.float32), labels=np.zeros(1000, np.int64))
    content = bytearray(npz.read_bytes())
    content[5000] ^= 1
    npz.write_bytes(content)
    with pytest.raises(InvalidInput, match="cannot be read"):
        read(NpzSource(npz))


def draw(path: Path, colour: tuple[int, int, int], size: tuple[int, int] = (12, 8)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path)


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    root = tmp_path / "pictures"
    draw(root / "dog" / "b.png", (0, 0, 250))
    draw(root / "cat" / "a.png", (250, 0, 0))
    draw(root / "cat" / "more" / "c.jpg", (0, 250, 0), (300, 200))
    return root


def test_a_folder_of_images_is_decoded_and_resized(pictures: Path) -> None:
    samples = read(FolderSource(pictures), COLOUR)
    assert samples.inputs.shape == (3, 4, 6, 3)
    assert samples.inputs.dtype == np.uint8
    assert samples.labels.tolist() == [0, 0, 1]
    assert samples.inputs[0, 0, 0].tolist() == [250, 0, 0]
    assert samples.inputs[2, 3, 5].tolist() == [0, 0, 250]
    assert read(FolderSource(pictures), GREY).inputs.shape == (3, 4, 6, 1)


def test_unreadable_images_are_left_out_and_counted(pictures: Path, caplog: pytest.LogCaptureFixture) -> None:
    (pictures / "cat" / "broken.png").write_bytes(b"no picture")
    (pictures / "dog" / "cut.png").write_bytes((pictures / "dog" / "b.png").read_bytes()[:50])
    (pictures / "dog" / ".hidden").write_bytes(b"nobody looks here")
    with caplog.at_level(logging.WARNING):
        assert read(FolderSource(pictures), COLOUR).labels.tolist() == [0, 0, 1]
    assert len(caplog.records) == 1
    assert "2 of 5 files" in caplog.text


def test_files_of_every_kind_of_damage_are_left_out_and_counted(
    pictures: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    cat = pictures / "cat"
    (cat / "link.png").symlink_to("nowhere.png")
    (cat / "loop.png").symlink_to("loop.png")
    os.mkfifo(cat / "pipe.png")
    os.close(os.open(os.fsencode(cat) + b"/\xff.png", os.O_CREAT))
    unknown_pixels = struct.pack("<7I44x2I4s5I20x", 124, 0x1007, 4, 4, 0, 0, 0, 32, 0, b"XXXX", 0, 0, 0, 0, 0)
    (cat / "damaged.dds").write_bytes(b"DDS " + unknown_pixels)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 300 * 200)
    draw(cat / "large.png", (1, 2, 3), (300, 201))  # Pillow warns
    draw(cat / "huge.png", (1, 2, 3), (600, 201))  # Pillow rejects
    source = FolderSource(pictures)
    assert source.fingerprint() == source.fingerprint()
    with caplog.at_level(logging.WARNING):
        assert read(source, COLOUR).labels.tolist() == [0, 0, 1]
    assert "7 of 10 files" in caplog.text


@pytest.mark.parametrize("suffix", ["png", "tif", "pgm"])
def test_sixteen_bit_greys_are_scaled(tmp_path: Path, suffix: str) -> None:
    greys = np.linspace(0, 65535, 24).astype(np.uint16).reshape(4, 6)
    (tmp_path / "cat").mkdir()
    Image.fromarray(greys).save(tmp_path / "cat" / f"deep.{suffix}")
    expected = greys.astype(float) / 65535 * 255
    for spec in (GREY, COLOUR):
        inputs = read(FolderSource(tmp_path), spec).inputs[0]
        assert np.abs(inputs[:, :, 0] - expected).max() <= 1


def test_a_folder_that_is_not_a_class_is_named(pictures: Path) -> None:
    draw(pictures / "bird" / "x.png", (1, 2, 3))
    with pytest.raises(InvalidInput, match=r"bird' is not a class of the bundle; its classes are cat, dog"):
        read(FolderSource(pictures), COLOUR)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (FEATURES, "data are image files; the bundle takes features"),
        (InputSpec(kind="image", shape=(4, 6, 4)), "have 4 channels; image files have 1 or 3"),
    ],
)
def test_images_that_the_bundle_does_not_take_are_rejected(pictures: Path, spec: InputSpec, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        read(FolderSource(pictures), spec)


def test_an_empty_folder_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="no readable images"):
        read(FolderSource(tmp_path), COLOUR)


def test_without_pillow_the_error_names_the_package_to_install(pictures: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InvalidInput, match=r"install moonfed\[images\]"):
        FolderSource(pictures).check()


def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> str:
    name = f"user_{abs(hash(body))}"
    (tmp_path / f"{name}.py").write_text(f"import numpy as np\n\nlines = []\n\ndef load(spec, classes):\n    {body}\n")
    monkeypatch.syspath_prepend(tmp_path)
    return f"{name}:load"


def test_a_function_receives_the_input_spec_and_classes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = "return np.full((len(classes), *spec.shape), 7, spec.dtype), [1, 0]"
    samples = read(FunctionSource(module(tmp_path, monkeypatch, body)))
    assert samples.inputs.tolist() == [[7, 7, 7], [7, 7, 7]]
    assert samples.labels.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return None", r"returned NoneType; it must return \(inputs, labels\)"),
        ("return 1, 2, 3", "returned tuple"),
        ("return np.zeros((2, 3), int), [0, 1]", "inputs of user_.*:load have dtype int64"),
        ("raise RuntimeError(42)", r"user_.*:load', which raised RuntimeError in .*user_.*\.py, line [0-9]+: 42"),
    ],
)
def test_a_functions_result_is_checked(
    body: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InvalidInput, match=message):
        read(FunctionSource(module(tmp_path, monkeypatch, body)))


def test_arrays_that_may_not_be_written_are_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = "return np.broadcast_to(np.float32(1), (2, 3)), [0, 1]"
    assert read(FunctionSource(module(tmp_path, monkeypatch, body))).inputs.flags.writeable


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no_such_module:load", "cannot be imported"),
        ("os:no_such", "cannot be imported"),
        ("os:name", "a str; it must"),
    ],
)
def test_a_missing_function_is_rejected(text: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        FunctionSource(text).check()


def test_data_name_their_kind(pictures: Path, npz: Path) -> None:
    assert isinstance(open_source(str(pictures)), FolderSource)
    assert isinstance(open_source(str(npz)), NpzSource)
    assert isinstance(open_source("package.module:function"), FunctionSource)
    with pytest.raises(InvalidInput, match=r"must be a folder of images, an \.npz file, or module:callable"):
        open_source(str(pictures / "nowhere"))
    with pytest.raises(NotFound, match="no such file"):
        open_source(str(npz)).check()


def read_again(reader: Reader, spec: InputSpec = COLOUR) -> RawSamples | None:
    return reader.read_if_changed(spec, CLASSES, lambda: None)


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


def many(count: int) -> RawSamples:
    generator = np.random.default_rng(1)
    inputs = generator.normal(size=(count, 3)).astype(np.float32)
    return RawSamples(inputs=inputs, labels=np.arange(count))


def test_the_split_is_whole_exact_and_the_same_each_time() -> None:
    training, holdout = split(many(50), 0.1)
    assert (len(training), len(holdout)) == (45, 5)
    assert sorted([*training.labels, *holdout.labels]) == list(range(50))
    again, _ = split(many(50), 0.1)
    assert np.array_equal(training.labels, again.labels)
    assert np.array_equal(training.inputs, many(50).inputs[training.labels])


def test_samples_that_are_added_do_not_move_the_others() -> None:
    _, before = split(many(200), 0.2)
    _, after = split(many(220), 0.2)
    assert len(set(before.labels) - set(after.labels)) < 15  # a random split anew would move about 32 of 40


def test_nothing_is_held_out_unless_asked() -> None:
    samples = many(5)
    training, holdout = split(samples, 0.0)
    assert training is samples
    assert len(holdout) == 0
    assert holdout.inputs.shape == (0, 3)
