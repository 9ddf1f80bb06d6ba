"""Image files as raw samples."""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path
from unittest.mock import ANY

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image, ImageOps

from moonfed.bundle.manifest import InputSpec
from moonfed.data.flaws import UnusableImage
from moonfed.data.images import (
    ANIMATED,
    DAMAGED,
    DARK,
    FLOAT,
    LARGE,
    UNOPENED,
    WIDE,
    decode_image,
    inspect_image,
    require_images,
)
from moonfed.errors import InvalidInput
from tests.support.refusals import refused

GREY, COLOUR = InputSpec(kind="image", shape=(2, 3, 1)), InputSpec(kind="image", shape=(2, 3, 3))
PIXELS = np.arange(6, dtype=np.uint8).reshape(2, 3) * 40
UPRIGHT = np.kron(np.array([[255, 200, 90], [0, 30, 60]], np.uint8), np.ones((16, 16), np.uint8))  # 32 x 48
STORED = {  # as a camera stores it with each EXIF orientation
    1: UPRIGHT,
    2: np.fliplr(UPRIGHT),
    3: np.rot90(UPRIGHT, 2),
    4: np.flipud(UPRIGHT),
    5: UPRIGHT.T,
    6: np.rot90(UPRIGHT),  # to be turned clockwise
    7: np.rot90(UPRIGHT, 2).T,
    8: np.rot90(UPRIGHT, -1),
}
FORMATS: dict[str, tuple[str, dict[str, object]]] = {
    "jpeg": ("jpg", {"quality": 95}),
    "png": ("png", {}),
    "webp": ("webp", {"lossless": True}),
    "tiff": ("tif", {}),
    "tiff-lzw": ("tif", {"compression": "tiff_lzw"}),
    "tiff-jpeg": ("tif", {"compression": "jpeg", "quality": 95}),
}


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    Image.fromarray(PIXELS).save(tmp_path / "grey.png")
    return tmp_path / "grey.png"


def pixels(file: Path, spec: InputSpec = GREY) -> npt.NDArray[np.uint8]:
    return decode_image(file, spec).pixels


def test_pixels_of_the_right_size_are_unchanged(picture: Path) -> None:
    np.testing.assert_array_equal(pixels(picture)[..., 0], PIXELS)


def test_a_grey_image_becomes_one_of_three_equal_channels(picture: Path) -> None:
    found = pixels(picture, COLOUR)
    assert found.shape == (2, 3, 3)
    np.testing.assert_array_equal(found, np.repeat(PIXELS[..., None], 3, axis=2))


@pytest.mark.parametrize("orientation", STORED)
@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("size", [(2, 3), (32, 48), (12, 12), (40, 4)])
def test_images_are_turned_upright_before_they_are_resized(
    tmp_path: Path, kind: str, orientation: int, size: tuple[int, int]
) -> None:
    suffix, options = FORMATS[kind]
    exif = Image.Exif()
    exif[0x0112] = orientation
    image = Image.fromarray(np.ascontiguousarray(STORED[orientation]))
    image.save(tmp_path / f"turned.{suffix}", exif=exif, **options)  # type: ignore[arg-type]
    found = pixels(tmp_path / f"turned.{suffix}", InputSpec(kind="image", shape=(*size, 1)))[..., 0]
    expected = np.asarray(Image.fromarray(UPRIGHT).resize(size[::-1], Image.Resampling.BILINEAR))
    assert np.abs(found.astype(int) - expected).max() <= (40 if "jp" in kind else 1)


def test_an_orientation_after_the_pixels_of_a_png_counts(tmp_path: Path) -> None:
    file = tmp_path / "late.png"
    Image.fromarray(STORED[3].copy()).save(file)
    exif = b"eXIfMM\0*" + struct.pack(">IHHHIHHI", 8, 1, 0x0112, 3, 1, 3, 0, 0)
    end = file.read_bytes()[-12:]
    chunk = struct.pack(">I", len(exif) - 4) + exif + struct.pack(">I", zlib.crc32(exif))
    file.write_bytes(file.read_bytes()[:-12] + chunk + end)
    np.testing.assert_array_equal(pixels(file, InputSpec(kind="image", shape=(32, 48, 1)))[..., 0], UPRIGHT)


@pytest.mark.parametrize(
    "exif",
    [
        b"Exif\0\0",
        b"Exif\0\0MM\0*\xff\xff\xff\xff",
        b"Exif\0\0no exif at all",
        b"Exif\0\0MM\0*" + struct.pack(">IHHHI4s", 8, 1, 0x0112, 2, 2, b"x"),
    ],
)
def test_damaged_exif_data_do_not_cost_the_image(tmp_path: Path, exif: bytes) -> None:
    Image.fromarray(UPRIGHT).save(tmp_path / "a.jpg", exif=exif, quality=95)
    assert np.abs(pixels(tmp_path / "a.jpg", InputSpec(kind="image", shape=(32, 48, 1)))[..., 0] - UPRIGHT.astype(int)
                  ).max() <= 40  # fmt: skip


@pytest.mark.parametrize("orientation", [0, 9, 255])
def test_an_orientation_that_exif_does_not_define_is_ignored(tmp_path: Path, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(UPRIGHT).save(tmp_path / "a.png", exif=exif)
    np.testing.assert_array_equal(
        pixels(tmp_path / "a.png", InputSpec(kind="image", shape=(32, 48, 1)))[..., 0], UPRIGHT
    )


@pytest.mark.parametrize(
    ("mode", "suffix", "left", "middle"),
    [
        ("RGBA", "png", (9, 9, 9, 0), (255, 0, 0, 128)),
        ("RGBA", "webp", (9, 9, 9, 0), (255, 0, 0, 128)),
        ("RGBA", "tif", (9, 9, 9, 0), (255, 0, 0, 128)),
        ("LA", "png", (9, 0), (0, 128)),
    ],
)
def test_transparent_images_lie_on_white(
    tmp_path: Path, mode: str, suffix: str, left: tuple[int, ...], middle: tuple[int, ...]
) -> None:
    image = Image.new(mode, (3, 2))
    for row in (0, 1):
        image.putpixel((0, row), left)
        image.putpixel((1, row), middle)
        image.putpixel((2, row), (*[0] * (len(left) - 1), 255))
    image.save(tmp_path / f"a.{suffix}", lossless=True)
    found = pixels(tmp_path / f"a.{suffix}", COLOUR).astype(int)
    half = [255, 127, 127] if mode == "RGBA" else [127] * 3
    assert np.abs(found - [[[255] * 3, half, [0] * 3]]).max() <= 1
    assert abs(int(pixels(tmp_path / f"a.{suffix}")[0, 0, 0]) - 255) <= 1


@pytest.mark.parametrize("mode", ["P", "L", "RGB", "I;16"])
@pytest.mark.parametrize("spec", [GREY, COLOUR])
def test_a_transparent_colour_becomes_white(tmp_path: Path, mode: str, spec: InputSpec) -> None:
    if mode == "I;16":
        image, transparent = Image.fromarray(np.array([[0, 300, 40000]] * 2, np.uint16)), 0
    else:
        image = Image.fromarray(np.array([[0, 300 % 256, 200]] * 2, np.uint8))
        image = image.convert(mode) if mode != "P" else image.quantize(3)
        transparent = image.getpixel((0, 0))  # type: ignore[assignment]
    image.save(tmp_path / "a.png", transparency=transparent)
    found = pixels(tmp_path / "a.png", spec)
    assert found[0, 0].tolist() == [255] * spec.shape[2]
    assert found[0, 1].max() < 128


def test_greys_of_16_bits_are_scaled_and_not_clipped(tmp_path: Path) -> None:
    Image.fromarray(np.array([[0, 255, 256], [32768, 65535, 1000]], np.uint16)).save(tmp_path / "x-ray.png")
    found = decode_image(tmp_path / "x-ray.png", GREY)
    np.testing.assert_array_equal(found.pixels[..., 0], [[0, 0, 1], [128, 255, 3]])
    assert found.flaws == ()


@pytest.mark.parametrize(("highest", "flaws"), [(4095, (DARK,)), (1023, (DARK,)), (4096, ()), (0, ())])
@pytest.mark.parametrize("suffix", ["png", "tif"])
def test_twelve_bits_in_sixteen_are_reported(
    tmp_path: Path, suffix: str, highest: int, flaws: tuple[object, ...]
) -> None:
    Image.fromarray(np.array([[0, highest // 2, highest]] * 2, np.uint16)).save(tmp_path / f"a.{suffix}")
    found = decode_image(tmp_path / f"a.{suffix}", GREY)
    assert found.flaws == flaws
    assert found.pixels.max() == highest >> 8


@pytest.mark.parametrize("numbers", [[0.0, 0.5, 1.0], [0.0, 100.0, 255.0], [-3.0, 0.0, 70000.0]])
def test_floating_point_images_are_refused_with_the_reason(tmp_path: Path, numbers: list[float]) -> None:
    file = tmp_path / "a.tif"
    Image.fromarray(np.array([numbers] * 2, np.float32)).save(file)
    with pytest.raises(UnusableImage, match="has floating-point pixels, whose range is unknown") as refused:
        decode_image(file, COLOUR)
    assert refused.value.flaw == FLOAT
    with pytest.raises(UnusableImage):
        inspect_image(file)


@pytest.mark.parametrize("numbers", [[0, 70000, 1], [-1, 0, 5], [0, 2**31 - 1, 3]])
def test_whole_numbers_beyond_16_bits_are_refused(tmp_path: Path, numbers: list[int]) -> None:
    Image.fromarray(np.array([numbers] * 2, np.int32)).save(tmp_path / "a.tif")
    with pytest.raises(UnusableImage) as refused:
        decode_image(tmp_path / "a.tif", GREY)
    assert refused.value.flaw == WIDE


@pytest.mark.parametrize("suffix", ["gif", "png", "webp", "tif"])
def test_the_first_frame_of_several_is_used_and_that_is_reported(tmp_path: Path, suffix: str) -> None:
    frames = [Image.new("L", (3, 2), level) for level in (0, 255, 128)]
    file = tmp_path / f"a.{suffix}"
    frames[0].save(file, save_all=True, append_images=frames[1:])
    found = decode_image(file, GREY)
    assert found.flaws == inspect_image(file) == (ANIMATED,)
    assert found.pixels.max() <= 1
    frames[0].save(file)
    assert decode_image(file, GREY).flaws == inspect_image(file) == ()


def test_further_pictures_of_a_phones_file_are_no_frames(tmp_path: Path) -> None:
    views = [Image.new("L", (3, 2), level) for level in (0, 255)]
    views[0].save(tmp_path / "a.jpg", format="MPO", save_all=True, append_images=views[1:])
    found = decode_image(tmp_path / "a.jpg", GREY)
    assert (found.flaws, found.pixels.max() <= 1) == ((), True)


@pytest.mark.parametrize("limit", [40_000, 20_000, 1_000])  # Pillow warns of 60,000 pixels, or rejects them
@pytest.mark.parametrize("size", [(300, 200), (200, 300)])
def test_the_limit_is_on_decoded_pixels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int, size: tuple[int, int]
) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
    image = ImageOps.pad(Image.new("RGB", (1, 1), (0, 200, 0)), size, color=(0, 200, 0))
    image.save(tmp_path / "a.jpg", quality=95)
    assert np.abs(pixels(tmp_path / "a.jpg", COLOUR).astype(int) - (0, 200, 0)).max() <= 4
    assert inspect_image(tmp_path / "a.jpg") == ()
    assert limit == Image.MAX_IMAGE_PIXELS
    image.save(tmp_path / "progressive.jpg", progressive=True)
    image.save(tmp_path / "a.png")
    image.save(tmp_path / "a.webp")
    for name in ("a.png", "a.webp", "progressive.jpg"):
        for attempt in (lambda file: decode_image(file, COLOUR), inspect_image):
            with pytest.raises(UnusableImage) as refused:
                attempt(tmp_path / name)
            assert refused.value.flaw == LARGE
            assert refused.value.detail == f"0.06 megapixels; the limit is {limit / 1e6:.3g}"


def test_a_jpeg_that_is_not_reduced_far_enough_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10_000)
    Image.new("RGB", (300, 200)).save(tmp_path / "a.jpg")
    with pytest.raises(
        UnusableImage, match=r"a\.jpg has too many pixels to decode \(0\.015 megapixels; the limit is 0\.01"
    ):
        decode_image(tmp_path / "a.jpg", InputSpec(kind="image", shape=(90, 90, 3)))


def test_files_that_are_no_images_are_named(tmp_path: Path, picture: Path) -> None:
    (tmp_path / "text").write_text("not an image")
    (tmp_path / "torn.png").write_bytes(picture.read_bytes()[:40])
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    cases = {"text": DAMAGED, "torn.png": DAMAGED, "pipe": DAMAGED, "gone": UNOPENED, "loop": UNOPENED}
    for name, flaw in cases.items():
        with pytest.raises(UnusableImage) as refused:
            decode_image(tmp_path / name, GREY)
        assert refused.value.flaw == flaw, name


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        (InputSpec(kind="features", shape=(4,)), ("image files", ANY)),
        (InputSpec(kind="image", shape=(2, 2, 4)), ("channels", 4)),
    ],
)
def test_a_bundle_that_no_image_file_fits_is_named(spec: InputSpec, named: tuple[str, object]) -> None:
    with refused(InvalidInput, *named):
        require_images(spec)
