"""A folder with one folder of images per class: FOLDER/CLASS/*.jpg."""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from edge_client.data.samples import Sign
from moonfed.errors import InvalidInput, NotFound
from moonfed.manifest import InputSpec
from moonfed.samples import RawSamples, check_samples

if TYPE_CHECKING:
    from PIL import Image

_MODES = {1: "L", 3: "RGB"}  # Pillow's names, by number of channels

log = logging.getLogger(__name__)


class FolderSource:
    """Images in class folders, decoded and resized to the bundle's input. Folder names are class names."""

    decodes = True

    def __init__(self, path: Path) -> None:
        self.path = path

    def check(self) -> None:
        """Raises NotFound unless the folder is there, InvalidInput if images cannot be read on this device."""
        if not self.path.is_dir():
            raise NotFound(f"data is {str(self.path)!r}; there is no such folder")
        require_pillow()

    def fingerprint(self) -> str:
        """Of all files' paths, sizes and times of change."""
        self.check()
        digest = hashlib.sha256(str(self.path.resolve()).encode())
        for name, file in self._files():
            digest.update(f"{name}\0{file}\0{_facts(file)}\n".encode(errors="surrogateescape"))
        return digest.hexdigest()

    def read(self, spec: InputSpec, classes: tuple[str, ...], sign: Sign) -> RawSamples:
        """All images that can be read; the others are counted and reported once."""
        self.check()
        height, width, mode = _format(spec)
        self._check_names(classes)
        inputs, labels, unreadable = [], [], []
        for name, file in self._files():
            sign()
            pixels = _decode(file, height, width, mode)
            if pixels is None:
                unreadable.append(file)
                continue
            inputs.append(pixels.reshape(spec.shape))
            labels.append(classes.index(name))
        if unreadable:
            log.warning("%d of %d files in %s cannot be read as images and are left out, such as %s",
                        len(unreadable), len(unreadable) + len(inputs), self.path, unreadable[0])  # fmt: skip
        if not inputs:
            raise InvalidInput(
                f"{str(self.path)!r} has no readable images; each class needs a folder of its own with images"
            )
        return check_samples(np.stack(inputs), np.array(labels), spec, classes, str(self.path))

    def _check_names(self, classes: tuple[str, ...]) -> None:
        for folder in self._folders():
            if folder.name not in classes:
                raise InvalidInput(
                    f"{str(folder)!r} is not a class of the bundle; its classes are {', '.join(classes)}"
                )

    def _folders(self) -> list[Path]:
        return sorted(entry for entry in self.path.iterdir() if entry.is_dir() and not entry.name.startswith("."))

    def _files(self) -> Iterator[tuple[str, Path]]:
        """Class name and file, in an order that is the same everywhere."""
        for folder in self._folders():
            for file in image_files(folder):
                yield folder.name, file


def require_pillow() -> None:
    """Raises InvalidInput if images cannot be read on this device."""
    if importlib.util.find_spec("PIL") is None:
        raise InvalidInput("reading images needs Pillow, which is not installed; install moonfed[images]")


def image_files(folder: Path) -> Iterator[Path]:
    """All files in a folder and the folders in it but hidden ones, in an order that is the same everywhere."""
    for root, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            if not name.startswith("."):
                yield Path(root, name)


def decode_image(file: Path, spec: InputSpec) -> npt.NDArray[np.uint8] | None:
    """One image as a sample of the bundle, decoded and resized as for training; None if it cannot be read.

    Raises InvalidInput for a bundle that takes no images.
    """
    pixels = _decode(file, *_format(spec))
    return None if pixels is None else pixels.reshape(spec.shape)


def _format(spec: InputSpec) -> tuple[int, int, str]:
    if spec.kind != "image":
        raise InvalidInput(f"data are image files; the bundle takes {spec.kind}, so give it an .npz file")
    height, width, channels = spec.shape
    if channels not in _MODES:
        raise InvalidInput(f"the bundle's images have {channels} channels; image files can give 1 or 3")
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
    """Scales 16-bit greys, which Pillow would cut off at 255."""
    from PIL import Image

    if image.mode != "I" and not image.mode.startswith("I;16"):
        return image
    return Image.fromarray((np.asarray(image).clip(0, 65535) >> 8).astype(np.uint8))


def _facts(file: Path) -> str:
    try:
        facts = file.stat()
    except OSError:  # a link to nowhere, or deleted just now; reading counts it
        return "unreadable"
    return f"{facts.st_size}\0{facts.st_mtime_ns}"
