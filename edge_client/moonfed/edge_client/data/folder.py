"""A folder with one folder of images per class: FOLDER/CLASS/*.jpg."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from moonfed.edge_client.data.samples import HeartbeatCallback
from moonfed.errors import InvalidInput, NotFound
from moonfed.images import decode_image, require_images, require_pillow
from moonfed.manifest import InputSpec
from moonfed.samples import RawSamples, check_samples

log = logging.getLogger(__name__)


class FolderSource:
    """Images in class folders, decoded and resized to the bundle's input. Folder names are class names."""

    decodes = True

    def __init__(self, path: Path) -> None:
        self.path = path

    def check(self) -> None:
        """Raise NotFound unless the folder is there, InvalidInput if images cannot be read on this device."""
        if not self.path.is_dir():
            raise NotFound(f"data is {str(self.path)!r}; there is no such folder")
        require_pillow()

    def fingerprint(self) -> str:
        """Hash all files' paths, sizes and modification times."""
        self.check()
        digest = hashlib.sha256(str(self.path.resolve()).encode())
        for name, file in self._files():
            digest.update(f"{name}\0{file}\0{_facts(file)}\n".encode(errors="surrogateescape"))
        return digest.hexdigest()

    def read(self, spec: InputSpec, classes: tuple[str, ...], heartbeat: HeartbeatCallback) -> RawSamples:
        """Read all images that can be decoded; count and log the others once."""
        self.check()
        require_images(spec)
        self._check_names(classes)
        inputs, labels, unreadable = [], [], []
        for name, file in self._files():
            heartbeat()
            pixels = decode_image(file, spec)
            if pixels is None:
                unreadable.append(file)
                continue
            inputs.append(pixels)
            labels.append(classes.index(name))
        if unreadable:
            log.warning("%d of %d files in %s cannot be read as images and are ignored, such as %s",
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
        """Return class name and file of each image, in a deterministic order."""
        for folder in self._folders():
            for file in image_files(folder):
                yield folder.name, file


def image_files(folder: Path) -> Iterator[Path]:
    """Return all image files below a folder except hidden ones, in a deterministic order."""
    for root, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            if not name.startswith("."):
                yield Path(root, name)


def _facts(file: Path) -> str:
    try:
        facts = file.stat()
    except OSError:  # a dangling link, or just deleted; reading counts it
        return "unreadable"
    return f"{facts.st_size}\0{facts.st_mtime_ns}"
