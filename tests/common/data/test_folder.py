"""Images of folders, one per class, and every way in which they can be wrong."""

from __future__ import annotations

import importlib.util
import logging
import os
import struct
from pathlib import Path
from unittest.mock import ANY

import numpy as np
import pytest
from PIL import Image

from moonfed.bundle.manifest import InputSpec
from moonfed.bundle.target import class_target
from moonfed.data.folder import FolderSource
from moonfed.errors import InvalidInput
from tests.support.device_samples import COLOUR, FEATURES, GREY, draw, read
from tests.support.refusals import refused


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


def test_unreadable_images_are_reported_again_when_their_number_changes(
    pictures: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = FolderSource(pictures)
    (pictures / "cat" / "broken.png").write_bytes(b"no picture")
    for _ in range(2):
        read(source, COLOUR)
    assert len(caplog.records) == 1
    (pictures / "dog" / "broken.png").write_bytes(b"no picture")
    read(source, COLOUR)
    assert "2 of 5 files" in caplog.records[1].message


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
        samples = read(source, COLOUR)
    assert samples.labels.tolist() == [0, 0, 1]
    assert [record.message for record in caplog.records] == list(samples.notes)
    assert set(samples.notes) == {
        f"{sentence}, such as {cat}/{example}"
        for sentence, example in (
            (f"3 of 10 files in {pictures} cannot be read as images and are ignored", "damaged.dds"),
            (f"2 of 10 files in {pictures} cannot be opened and are ignored", "link.png (No such file or directory)"),
            (
                f"2 of 10 files in {pictures} have too many pixels to decode and are ignored",
                "huge.png (0.121 megapixels; the limit is 0.06)",
            ),
        )
    }


@pytest.mark.parametrize("suffix", ["png", "tif", "pgm"])
def test_sixteen_bit_greys_are_scaled(tmp_path: Path, suffix: str) -> None:
    greys = np.linspace(0, 65535, 24).astype(np.uint16).reshape(4, 6)
    (tmp_path / "cat").mkdir()
    Image.fromarray(greys).save(tmp_path / "cat" / f"deep.{suffix}")
    expected = greys.astype(float) / 65535 * 255
    for spec in (GREY, COLOUR):
        inputs = read(FolderSource(tmp_path), spec).inputs[0]
        assert np.abs(inputs[:, :, 0] - expected).max() <= 1


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        (["bird"], "folder 'bird', which is"),
        (["bird", "cats"], "folders 'bird', 'cats', which are"),
        (list("12345"), "folders '1', '2', '3' and 2 more, which are"),
    ],
)
def test_folders_that_are_no_classes_are_named_and_may_be_left_out(
    pictures: Path, names: list[str], sentence: str
) -> None:
    for name in names:
        draw(pictures / name / "x.png", (1, 2, 3))
    with pytest.raises(InvalidInput) as refused:
        read(FolderSource(pictures), COLOUR)
    assert str(refused.value) == (
        f"'{pictures}' has the {sentence} not named after one of the model's classes (cat, dog); "
        "rename or remove it, or leave it out with --ignore-folder"
    )
    assert read(FolderSource(pictures, ignored=names), COLOUR).labels.tolist() == [0, 0, 1]


def test_a_class_is_the_same_with_its_accents_decomposed(tmp_path: Path) -> None:
    draw(tmp_path / "Ko\N{COMBINING DIAERESIS}ln" / "a.png", (1, 2, 3))
    spec = COLOUR
    assert FolderSource(tmp_path).read(
        spec, class_target(("Bonn", "K\N{LATIN SMALL LETTER O WITH DIAERESIS}ln"))
    ).labels.tolist() == [1]


@pytest.mark.parametrize("inner", ["dog", "indoors/dog"], ids=["directly", "deeper"])
def test_a_folder_of_another_class_within_a_class_is_rejected(pictures: Path, inner: str) -> None:
    (pictures / "cat" / inner).mkdir(parents=True)
    (pictures / "dog" / "b.png").rename(pictures / "cat" / inner / "b.png")
    with pytest.raises(InvalidInput, match="the folder 'dog', the name of a class, within the class 'cat'; a"):
        read(FolderSource(pictures), COLOUR)


@pytest.mark.parametrize("inner", ["2024", "cat", "puppies"])
def test_a_folder_of_another_name_within_a_class_belongs_to_it(pictures: Path, inner: str) -> None:
    (pictures / "cat" / inner).mkdir()
    (pictures / "dog" / "b.png").rename(pictures / "cat" / inner / "b.png")
    assert read(FolderSource(pictures), COLOUR).labels.tolist() == [0, 0, 0]


def test_nothing_of_a_nas_counts(pictures: Path, caplog: pytest.LogCaptureFixture) -> None:
    for place in ("cat/@eaDir/a.png", "dog/@eaDir/b.png", "@eaDir", "#recycle", "lost+found"):
        draw(pictures / place / "SYNOPHOTO_THUMB_XL.jpg", (1, 2, 3))
    assert read(FolderSource(pictures), COLOUR).labels.tolist() == [0, 0, 1]
    assert not caplog.records


def test_images_beside_the_class_folders_are_counted(pictures: Path, caplog: pytest.LogCaptureFixture) -> None:
    draw(pictures / "loose.png", (1, 2, 3))
    read(FolderSource(pictures), COLOUR)
    (record,) = caplog.records
    assert record.message.startswith("1 file in")
    assert str(pictures / "loose.png") in record.message


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        (FEATURES, ("image files", ANY)),
        (InputSpec(kind="image", shape=(4, 6, 4)), ("channels", 4)),
    ],
)
def test_images_that_the_bundle_does_not_take_are_rejected(
    pictures: Path, spec: InputSpec, named: tuple[str, object]
) -> None:
    with refused(InvalidInput, *named):
        read(FolderSource(pictures), spec)


def test_an_empty_folder_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="no readable images"):
        read(FolderSource(tmp_path), COLOUR)


def test_without_pillow_the_error_names_the_package_to_install(pictures: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InvalidInput, match=r"pip install 'moonfed\[images\]'"):
        FolderSource(pictures).check()
