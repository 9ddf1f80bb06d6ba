"""Image files as raw samples, decoded and resized identically for training, prediction and serving."""

from __future__ import annotations

import importlib.util
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from moonfed.command_line import pip_install
from moonfed.errors import InvalidInput
from moonfed.manifest import InputSpec

if TYPE_CHECKING:
    from PIL import Image

_MODES = {1: "L", 3: "RGB"}  # Pillow's names, by number of channels


def require_pillow() -> None:
    """Raise InvalidInput if images cannot be read on this device."""
    if importlib.util.find_spec("PIL") is None:
        raise InvalidInput(
            f"reading images needs Pillow, which is not installed; in moonfed's sources: {pip_install('images')}"
        )


def decode_image(file: Path, spec: InputSpec) -> npt.NDArray[np.uint8] | None:
    """Decode and resize one image as for training; None if it cannot be read.

    Raises InvalidInput for a bundle that takes no images.
    """
    pixels = _decode(file, *_format(spec))
    return None if pixels is None else pixels.reshape(spec.shape)


def is_image(file: Path) -> bool:
    """Return True if a file begins like an image; the rest is not read."""
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            with Image.open(file):
                return True
    except Exception:  # see `_decode`
        return False


def require_images(spec: InputSpec) -> None:
    """Raise InvalidInput for a bundle whose samples cannot come from image files."""
    _format(spec)


def _format(spec: InputSpec) -> tuple[int, int, str]:
    if spec.kind != "image":
        raise InvalidInput(f"data are image files; the model takes {spec.describe()}")
    height, width, channels = spec.shape
    if channels not in _MODES:
        raise InvalidInput(f"the model's images have {channels} channels; image files have 1 or 3")
    return height, width, _MODES[channels]


def _decode(file: Path, height: int, width: int, mode: str) -> npt.NDArray[np.uint8] | None:
    from PIL import Image  # optional: only devices with image files have it

    if not file.is_file():  # opening a pipe would wait for ever
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(file) as image:
                image.draft(mode, (width, height))  # lets JPEG decode at a reduced size
                resized = _eight_bits(image).convert(mode).resize((width, height), Image.Resampling.BILINEAR)
        return np.asarray(resized, dtype=np.uint8)
    except Exception:  # each of Pillow's many decoders fails in its own way when a file is damaged
        return None


def _eight_bits(image: Image.Image) -> Image.Image:
    """Scale 16-bit greys, which Pillow would clip at 255."""
    from PIL import Image

    if image.mode != "I" and not image.mode.startswith("I;16"):
        return image
    return Image.fromarray((np.asarray(image).clip(0, 65535) >> 8).astype(np.uint8))
