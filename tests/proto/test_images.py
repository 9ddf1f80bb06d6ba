"""Image files as raw samples."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from moonfed.errors import InvalidInput
from moonfed.images import decode_image, require_images
from moonfed.manifest import InputSpec

GREY, COLOUR = InputSpec(kind="image", shape=(2, 3, 1)), InputSpec(kind="image", shape=(2, 3, 3))
PIXELS = np.arange(6, dtype=np.uint8).reshape(2, 3) * 40


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    Image.fromarray(PIXELS).save(tmp_path / "grey.png")
    return tmp_path / "grey.png"


def test_pixels_of_the_right_size_are_unchanged(picture: Path) -> None:
    found = decode_image(picture, GREY)
    assert found is not None
    np.testing.assert_array_equal(found[..., 0], PIXELS)


def test_a_grey_image_becomes_one_of_three_equal_channels(picture: Path) -> None:
    found = decode_image(picture, COLOUR)
    assert found is not None
    assert found.shape == (2, 3, 3)
    np.testing.assert_array_equal(found, np.repeat(PIXELS[..., None], 3, axis=2))


def test_greys_of_16_bits_are_scaled_and_not_clipped(tmp_path: Path) -> None:
    Image.fromarray(np.array([[0, 255, 256], [32768, 65535, 1000]], np.uint16)).save(tmp_path / "x-ray.png")
    found = decode_image(tmp_path / "x-ray.png", GREY)
    assert found is not None
    np.testing.assert_array_equal(found[..., 0], [[0, 0, 1], [128, 255, 3]])


def test_files_that_are_no_images_are_skipped(tmp_path: Path, picture: Path) -> None:
    (tmp_path / "text").write_text("not an image")
    (tmp_path / "torn.png").write_bytes(picture.read_bytes()[:40])
    os.mkfifo(tmp_path / "pipe")
    for name in ("text", "torn.png", "pipe", "gone"):
        assert decode_image(tmp_path / name, GREY) is None, name


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        (InputSpec(kind="features", shape=(4,)), "data are image files; the model takes 4 features"),
        (InputSpec(kind="image", shape=(2, 2, 4)), "the model's images have 4 channels; image files have 1 or 3"),
    ],
)
def test_a_bundle_that_no_image_file_fits_is_named(spec: InputSpec, told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        require_images(spec)
