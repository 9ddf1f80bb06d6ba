"""A folder with one folder of images per class: FOLDER/CLASS/*.jpg."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from moonfed.data.data_set import DataSet, check_data_set
from moonfed.data.fingerprint import class_folders, folder_fingerprint, image_files
from moonfed.data.source import IGNORED, REQUIRED, HeartbeatCallback, LabelUse
from moonfed.errors import InvalidInput, NotFound
from moonfed.images import decode_image, require_images, require_pillow
from moonfed.manifest import InputSpec

log = logging.getLogger(__name__)


class FolderSource:
    """Images in class folders, decoded and resized to the bundle's input. Folder names are class names."""

    decodes = True

    def __init__(self, path: Path, option: str = "data") -> None:
        """`option`: its name, for messages."""
        self.path, self._option = path, option
        self._reported = 0  # files

    def check(self) -> None:
        """Raise NotFound unless the folder is there, InvalidInput if images cannot be read on this device."""
        if not self.path.is_dir():
            raise NotFound(f"{self._option} is {str(self.path)!r}; there is no such folder")
        require_pillow()

    def fingerprint(self) -> str:
        """Hash all files' paths, sizes and modification times."""
        self.check()
        return folder_fingerprint(self.path)

    def read(
        self,
        spec: InputSpec,
        classes: Sequence[str],
        heartbeat: HeartbeatCallback = lambda: None,
        labels: LabelUse = REQUIRED,
    ) -> DataSet:
        """Read all images that can be decoded; count the others, and log their number if it has changed.

        Images whose labels are ignored may be anywhere in the folder.
        """
        self.check()
        require_images(spec)
        labelled = labels != IGNORED
        found = class_files(self.path, classes) if labelled else [(file, 0) for file in image_files(self.path)]
        read = read_images([file for file, _ in found], spec, heartbeat)
        unreadable = len(found) - len(read.files)
        if read.unreadable and unreadable != self._reported:
            warn_of_unreadable(unreadable, len(found), self.path, read.unreadable)
        self._reported = unreadable
        if not read.files:
            needed = "; each class needs a folder of its own with images" if labelled else ""
            raise InvalidInput(f"{str(self.path)!r} has no readable images{needed}")
        label_of = dict(found)
        targets = np.array([label_of[file] for file in read.files], np.int64) if labelled else None
        return check_data_set(read.inputs, targets, spec, classes, str(self.path), files=read.files)


def warn_of_unreadable(unreadable: int, files: int, folder: Path, example: Path) -> None:
    """Log how many of a folder's files are not used."""
    log.warning("%d of %d files in %s cannot be read as images and are ignored, such as %s",
                unreadable, files, folder, example)  # fmt: skip


def class_files(path: Path, classes: Sequence[str]) -> list[tuple[Path, int]]:
    """Return each class's files with its position, in a deterministic order; InvalidInput if a folder is no class."""
    folders = class_folders(path)
    for folder in folders:
        if folder.name not in classes:
            raise InvalidInput(
                f"the data have the folder {str(folder)!r}, which is not named after one of the model's classes: "
                f"{', '.join(classes)}"
            )
    return [(file, classes.index(folder.name)) for folder in folders for file in image_files(folder)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadImages:
    """The images of some files in one array, and the files that could be read."""

    inputs: npt.NDArray[np.uint8]  # [N, height, width, channels]
    files: tuple[Path, ...]  # N
    unreadable: Path | None  # the first one


def read_images(files: Sequence[Path], spec: InputSpec, heartbeat: HeartbeatCallback = lambda: None) -> ReadImages:
    """Decode files, leaving out those that cannot be read. The images are in memory only once."""
    pixels, readable, unreadable = np.empty((len(files), *spec.shape), np.uint8), list[Path](), None
    for file in files:
        heartbeat()
        image = decode_image(file, spec)
        if image is None:
            unreadable = unreadable or file
        else:
            pixels[len(readable)] = image
            readable.append(file)
    return ReadImages(inputs=pixels[: len(readable)], files=tuple(readable), unreadable=unreadable)
