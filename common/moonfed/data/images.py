"""Image files as raw samples: decoded, turned upright and resized identically for training, prediction and serving."""

from __future__ import annotations

import importlib.util
import re
import stat
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
import numpy.typing as npt

from moonfed.bundle.manifest import InputSpec
from moonfed.command_line.programs import pip_install
from moonfed.data.bad_cells import UnusableData
from moonfed.data.flaws import Flaw, UnusableImage
from moonfed.errors import InvalidInput

if TYPE_CHECKING:
    from PIL import Image

DECODING = 2  # to be raised when files are chosen or decoded in another way, so that caches are rebuilt
DAMAGED = Flaw("cannot be read as an image", "cannot be read as images and are ignored")
UNOPENED = Flaw("cannot be opened", "cannot be opened and are ignored")
LARGE = Flaw("has too many pixels to decode", "have too many pixels to decode and are ignored")
FLOAT = Flaw(
    "has floating-point pixels, whose range is unknown; save it with 8 or 16 bits",
    "have floating-point pixels, whose range is unknown, and are ignored (save them with 8 or 16 bits)",
)
WIDE = Flaw(
    "has pixels below 0 or above 65535; save it with 8 or 16 bits",
    "have pixels below 0 or above 65535, and are ignored (save them with 8 or 16 bits)",
)
ANIMATED = Flaw("has several frames; only the first is used", "have several frames, of which only the first is used")
DARK = Flaw(
    "has 16 bits per pixel but no value above 4095, and becomes almost black; scale its values to 65535",
    "have 16 bits per pixel but no value above 4095, and become almost black (scale their values to 65535)",
)
INTERPOLATION = "bilinear"  # of images; Pillow's name in lower case
_MODES = {1: "L", 3: "RGB"}  # Pillow's names, by number of channels
_MASKS = ("P", "L", "1")  # whose pixels may be classes
_WITH_ALPHA = {"LA", "La", "PA", "RGBA", "RGBa"}
_JPEG = b"\xff\xd8\xff"
_SINGLE = {"MPO", "PSD"}  # formats whose further frames are previews, depths or layers of the first
_lifting = threading.Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedImage:
    """An image in the bundle's form; `flaws` say what of its file is lost."""

    pixels: npt.NDArray[np.uint8]  # [height, width, channels]
    flaws: tuple[Flaw, ...]


def require_pillow() -> None:
    """Raise InvalidInput if images cannot be read on this device."""
    if importlib.util.find_spec("PIL") is None:
        raise InvalidInput(f"reading images needs Pillow, which is not installed; run {pip_install('images')}")


def decode_image(file: Path, spec: InputSpec) -> DecodedImage:
    """Decode, turn upright and resize one image as for training; UnusableImage says why that is impossible.

    Raises InvalidInput for a bundle that takes no images.
    """
    from PIL import Image  # optional: only devices with image files have it

    height, width, mode = _format(spec)
    with _opened(file, mode, max(height, width)) as image:
        lost = _frames_lost(image)
        image.load()
        orientation = _orientation(image)
        if image.mode == "I" or image.mode.startswith("I;16"):
            image, dark = _eight_bits(image, file)
            lost += dark
        upright = _turned(_opaque(image).convert(mode), orientation)
        resized = upright.resize((width, height), Image.Resampling[INTERPOLATION.upper()])
    return DecodedImage(pixels=np.asarray(resized, dtype=np.uint8).reshape(spec.shape), flaws=lost)


def decode_mask(file: Path, image: Path, shape: tuple[int, ...]) -> npt.NDArray[np.uint8]:
    """Decode the classes [height, width] of an image's pixels, and resize them without mixing any.

    Raises UnusableImage for a damaged file, UnusableData for one that is no mask of this image.
    """
    from PIL import Image

    with _opened(file, "L", 1 << 30) as found:
        found.load()
        mode, size = found.mode, found.size
        pixels = np.asarray(found, np.uint8) if mode in _MASKS else None
    if pixels is None:
        allowed = "it must be an 8-bit palette or grey image whose pixels are classes"
        raise UnusableData(f"{file} is a mask of mode {mode}; {allowed}", f"a mask has mode {mode}; {allowed}")
    expected = _upright_size(image)
    if size != expected:
        sizes = f"{size[0]}x{size[1]} pixels and its image {expected[0]}x{expected[1]}; they must be equal"
        raise UnusableData(f"{file} is a mask of {sizes}", f"a mask has {sizes}")
    height, width = shape
    resized = Image.fromarray(pixels).resize((width, height), Image.Resampling.NEAREST)
    return np.asarray(resized, np.uint8)


def inspect_image(file: Path) -> tuple[Flaw, ...]:
    """Return what of a file would be lost, as far as its beginning shows; UnusableImage for one that is no image."""
    with _opened(file, "RGB", 1) as image:
        return _frames_lost(image)


def require_images(spec: InputSpec) -> None:
    """Raise InvalidInput for a bundle whose samples cannot come from image files."""
    _format(spec)


def _format(spec: InputSpec) -> tuple[int, int, str]:
    if spec.kind != "image":
        raise InvalidInput(f"data are image files; the model takes {spec.describe()}", field="image files")
    height, width, channels = spec.shape
    if channels not in _MODES:
        raise InvalidInput(
            f"the model's images have {channels} channels; image files have 1 or 3", field="channels", value=channels
        )
    return height, width, _MODES[channels]


@contextmanager
def _opened(file: Path, mode: str, side: int) -> Iterator[Image.Image]:
    """Open an image that is at least `side` pixels wide and high afterwards, if it was; its pixels are not decoded.

    Raises UnusableImage, also for what fails in the block.
    """
    try:
        if not stat.S_ISREG(file.stat().st_mode):  # opening a pipe would wait for ever
            raise UnusableImage(file, DAMAGED)
        stream = file.open("rb")
    except OSError as error:
        raise UnusableImage(file, UNOPENED, error.strerror or "") from error
    try:
        with stream, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with _identified(file, stream) as image:
                pixels = image.width * image.height
                image.draft(mode, (side, side))  # lets JPEG decode at a reduced size
                if not image.info.get("progressive"):  # a progressive one is in memory in full
                    pixels = image.width * image.height
                _require_decodable(file, pixels)
                if image.mode == "F":
                    raise UnusableImage(file, FLOAT)
                yield image
    except UnusableImage:
        raise
    except Exception as error:  # each of Pillow's many decoders fails in its own way when a file is damaged
        raise UnusableImage(file, DAMAGED) from error


def _identified(file: Path, stream: BinaryIO) -> Image.Image:
    """Read an image's header; for JPEG, Pillow's limit on the number of pixels is left to `_require_decodable`."""
    from PIL import Image

    begins = stream.read(len(_JPEG))
    stream.seek(0)
    if begins != _JPEG:
        try:
            return Image.open(stream)
        except Image.DecompressionBombError as error:
            number = re.search(r"(\d+) pixels", str(error))
            raise UnusableImage(file, LARGE, _size(int(number[1])) if number else "") from error
    with _lifting:
        limit, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
        try:
            return Image.open(stream)
        finally:
            Image.MAX_IMAGE_PIXELS = limit


def _require_decodable(file: Path, pixels: int) -> None:
    from PIL import Image

    if Image.MAX_IMAGE_PIXELS is not None and pixels > Image.MAX_IMAGE_PIXELS:
        raise UnusableImage(file, LARGE, _size(pixels))


def _size(pixels: int) -> str:
    from PIL import Image

    limit = f"; the limit is {Image.MAX_IMAGE_PIXELS / 1e6:.3g}" if Image.MAX_IMAGE_PIXELS is not None else ""
    return f"{pixels / 1e6:.3g} megapixels{limit}"


def _upright_size(file: Path) -> tuple[int, int]:
    """Return an image's width and height when it is turned upright."""
    try:
        with file.open("rb") as stream, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with _identified(file, stream) as image:
                width, height = image.size
                return (height, width) if _orientation(image) >= 5 else (width, height)
    except OSError as error:
        raise UnusableImage(file, UNOPENED, error.strerror or "") from error


def _frames_lost(image: Image.Image) -> tuple[Flaw, ...]:
    animated = image.format not in _SINGLE and getattr(image, "is_animated", False)
    return (ANIMATED,) if animated else ()


def _orientation(image: Image.Image) -> int:
    """Return the EXIF orientation of a loaded image, 1 to 8; 1 if there is none, or if it is damaged."""
    from PIL import ExifTags

    if image.format == "TIFF":  # Pillow turns it when it loads it, but some versions keep the number
        return 1
    try:
        return int(image.getexif().get(ExifTags.Base.Orientation, 1))
    except Exception:  # as for pixels
        return 1


def _turned(image: Image.Image, orientation: int) -> Image.Image:
    """Turn and mirror an image with this EXIF orientation so that it is upright."""
    from PIL import Image

    turns = Image.Transpose
    turn = {
        2: turns.FLIP_LEFT_RIGHT,
        3: turns.ROTATE_180,
        4: turns.FLIP_TOP_BOTTOM,
        5: turns.TRANSPOSE,
        6: turns.ROTATE_270,
        7: turns.TRANSVERSE,
        8: turns.ROTATE_90,
    }.get(orientation)
    return image if turn is None else image.transpose(turn)


def _opaque(image: Image.Image) -> Image.Image:
    """Lay an image with transparency over white."""
    from PIL import Image

    if image.mode not in _WITH_ALPHA and "transparency" not in image.info:
        return image
    layer = (image.convert("LA") if image.mode == "La" else image).convert("RGBA")
    white = Image.new("RGB", image.size, "white")
    white.paste(layer, mask=layer)
    return white


def _eight_bits(image: Image.Image, file: Path) -> tuple[Image.Image, tuple[Flaw, ...]]:
    """Scale 16-bit greys, which Pillow would clip at 255; UnusableImage for numbers that 16 bits do not hold."""
    from PIL import Image

    greys = np.asarray(image)
    highest = int(greys.max())
    if greys.min() < 0 or highest > 65535:
        raise UnusableImage(file, WIDE)
    if (transparent := image.info.get("transparency")) is not None:
        greys = np.where(greys == transparent, 65535, greys)
    return Image.fromarray((greys >> 8).astype(np.uint8)), (DARK,) if 0 < highest < 4096 else ()
