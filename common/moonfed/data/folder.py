"""A folder with one folder of images per class: FOLDER/CLASS/*.jpg."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from moonfed.bundle.manifest import InputSpec
from moonfed.bundle.target import TargetSpec
from moonfed.data.data_set import DataSet, check_data_set
from moonfed.data.fingerprint import folder_fingerprint
from moonfed.data.flaws import Flaw, Flaws, UnusableImage
from moonfed.data.image_folder import ImageFolder
from moonfed.data.images import decode_image, require_images, require_pillow
from moonfed.data.source import IGNORED, REQUIRED, HeartbeatCallback, LabelUse, report
from moonfed.data.spelling import NUMBER, Names
from moonfed.errors import InvalidInput, NotFound

SHOWN = 3  # folders that are no classes


class FolderSource:
    """Images in class folders, decoded and resized to the bundle's input. Folder names are class names."""

    decodes = True

    def __init__(self, path: Path, option: str = "data", ignored: Collection[str] = ()) -> None:
        """`option`: its name, for messages. `ignored`: names of folders to leave out."""
        self.path = path
        self._option = option
        self._ignored = ignored
        self._reported: dict[Flaw, int] = {}

    def check(self) -> None:
        """Raise NotFound unless the folder is there, InvalidInput if images cannot be read on this device."""
        self._require_folder()
        class_folders(ImageFolder(self.path, self._ignored))

    def _require_folder(self) -> None:
        try:
            present = self.path.is_dir()
        except OSError as error:  # the folder that it is in may not be read
            raise InvalidInput(
                field=self._option, value=self.path, rest=f", which cannot be read: {error.strerror}"
            ) from error
        if not present:
            raise NotFound(field=self._option, value=self.path, rest="; there is no such folder")
        require_pillow()

    def fingerprint(self) -> str:
        """Hash all files' paths, sizes and modification times."""
        self.check()
        return folder_fingerprint(self.path, self._ignored)

    def read(
        self,
        spec: InputSpec,
        target: TargetSpec,
        heartbeat: HeartbeatCallback = lambda: None,
        labels: LabelUse = REQUIRED,
    ) -> DataSet:
        """Read all images that can be used; count what is left out, and log it if it has changed.

        Images whose labels are ignored may be anywhere in the folder.
        """
        self._require_folder()
        require_images(spec)
        labelled = labels != IGNORED
        if labelled and target.kind != "class":
            raise InvalidInput(
                f"{str(self.path)!r} is a folder of classes; the task needs {target.describe()}", field="data"
            )
        images = ImageFolder(self.path, self._ignored)
        found = class_files(images, target.names) if labelled else [(file, 0) for file in all_files(images)]
        read = read_images([file for file, _ in found], spec, images.flaws, heartbeat)
        notes = tuple(images.flaws.sentences(len(found), str(self.path)))
        if images.flaws.numbers() != self._reported:
            report(notes)
        self._reported = images.flaws.numbers()
        if not read.files:
            needed = "; each class needs a folder of its own with images" if labelled else ""
            raise InvalidInput(f"{str(self.path)!r} has no readable images{needed}")
        label_of = dict(found)
        targets = np.array([label_of[file] for file in read.files], np.int64) if labelled else None
        return check_data_set(read.inputs, targets, spec, target, str(self.path), files=read.files, notes=notes)


def all_files(images: ImageFolder) -> list[Path]:
    """Return the files at any depth; InvalidInput if the folder cannot be read."""
    try:
        return list(images.files(images.path))
    except OSError as error:
        raise _unreadable(images, error) from error


def class_folders(images: ImageFolder) -> list[Path]:
    """Return the class folders; InvalidInput if the folder, or one of them, cannot be read.

    It names folders without their paths, which do not leave a device.
    """
    try:
        folders = images.classes()
    except OSError as error:
        raise _unreadable(images, error) from error
    for folder in folders:
        with _reading(images, folder):
            images.require_readable(folder)
    return folders


def class_files(images: ImageFolder, classes: Sequence[str]) -> list[tuple[Path, int]]:
    """Return each class's files with its position, in a deterministic order.

    Raises InvalidInput if a folder is no class, or cannot be read.
    """
    folders, known = class_folders(images), Names(classes)
    if others := [folder.name for folder in folders if known.find(folder.name) is None]:
        shown = ", ".join(map(repr, others[:SHOWN])) + (f" and {len(others) - SHOWN} more" if others[SHOWN:] else "")
        named = f"folder {shown}, which is" if len(others) == 1 else f"folders {shown}, which are"
        raise InvalidInput(
            f"{str(images.path)!r} has the {named} not named after one of the model's classes ({', '.join(classes)}); "
            "rename or remove it, or leave it out with --ignore-folder"
        )
    found = []
    for folder in folders:
        label = known.find(folder.name) or 0
        with _reading(images, folder):
            files = list(images.files(folder))
        _require_one_class(images, folder, {file.parent for file in files}, {*classes} - {classes[label]})
        found += [(file, label) for file in files]
    return found


def _require_one_class(images: ImageFolder, folder: Path, parents: Iterable[Path], others: Collection[str]) -> None:
    """Raise InvalidInput if files of a class are in a folder that is named after another class, unless by a number."""
    inner = {part for parent in parents for part in parent.relative_to(folder).parts}
    if both := sorted(name for name in inner & set(others) if not NUMBER.fullmatch(name)):
        raise InvalidInput(
            f"{str(images.path)!r} has the folder {both[0]!r}, the name of a class, within the class {folder.name!r}; "
            "a sample has one class: move or rename it"
        )


def _unreadable(images: ImageFolder, error: OSError) -> InvalidInput:
    return InvalidInput(f"{str(images.path)!r} cannot be read: {error.strerror}")


@contextmanager
def _reading(images: ImageFolder, folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InvalidInput(
            f"{str(images.path)!r} has the folder {folder.name!r}, which cannot be read: {error.strerror}; permit it, "
            "or leave it out with --ignore-folder"
        ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadImages:
    """The images of some files in one array, and the files that could be read."""

    inputs: npt.NDArray[np.uint8]  # [N, height, width, channels]
    files: tuple[Path, ...]  # N


def read_images(
    files: Sequence[Path], spec: InputSpec, flaws: Flaws, heartbeat: HeartbeatCallback = lambda: None
) -> ReadImages:
    """Decode files, leaving out and counting those that cannot be used. The images are in memory only once."""
    pixels, readable = np.empty((len(files), *spec.shape), np.uint8), list[Path]()
    for file in files:
        heartbeat()
        try:
            image = decode_image(file, spec)
        except UnusableImage as error:
            flaws.add(error.flaw, file, error.detail)
            continue
        for flaw in image.flaws:
            flaws.add(flaw, file)
        pixels[len(readable)] = image.pixels
        readable.append(file)
    return ReadImages(inputs=pixels[: len(readable)], files=tuple(readable))
