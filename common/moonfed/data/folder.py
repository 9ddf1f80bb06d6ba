"""A folder of images or texts.

What it holds follows from the target:

CLASS/*.jpg                       classes
images/*.jpg, masks/NAME.png      masks
images/*.jpg, labels.csv          labels
images/*.jpg, values.csv          values
*.jpg, or good/*.jpg and others   none; good or not is known for evaluation only
*.txt                             the next token
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from moonfed.bundle.manifest import InputSpec
from moonfed.bundle.target import TargetSpec
from moonfed.data.data_set import DataSet, check_data_set
from moonfed.data.fingerprint import folder_fingerprint
from moonfed.data.flaws import Flaw, Flaws, UnusableImage
from moonfed.data.folder_targets import IMAGES, anomalies, listed_targets, mask_files, read_mask
from moonfed.data.image_folder import ImageFolder
from moonfed.data.images import decode_image, require_images, require_pillow
from moonfed.data.source import IGNORED, REQUIRED, HeartbeatCallback, LabelUse, report
from moonfed.data.spelling import NUMBER, Names
from moonfed.data.storage import Storage
from moonfed.data.texts import holds_texts, read_texts
from moonfed.errors import InvalidInput, NotFound

SHOWN = 3  # folders that are no classes


class FolderSource:
    """Images, decoded and resized to the bundle's input, with their targets; or texts, cut in windows of tokens."""

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
        if not holds_texts(self.path):
            require_pillow()
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
        storage: Storage | None = None,
    ) -> DataSet:
        """Read all images that can be used; count what is left out, and log it if it has changed.

        Images whose labels are ignored may be anywhere in the folder.
        """
        self._require_folder()
        images, storage = ImageFolder(self.path, self._ignored), storage or Storage()
        if target.kind == "next":
            return self._noted(read_texts(images, spec, target, heartbeat, storage), images)
        require_pillow()
        require_images(spec)
        labelled = labels != IGNORED
        found = _targets_of(images, target) if labelled else dict.fromkeys(_unlabelled(images, target))
        masks = Masks(found, target, storage) if labelled and target.kind == "mask" else None
        read = read_images(list(found), spec, images.flaws, heartbeat, storage, masks)
        inputs, files, targets = read.inputs, read.files, None
        if masks:
            targets = masks.rows.array()
        elif labelled and all(value is not None for value in found.values()):
            targets = np.array([found[file] for file in files])
        if not files:
            needed = f"; it needs {_NEEDED[target.kind]}" if labelled else ""
            raise InvalidInput(f"{str(self.path)!r} has no readable images{needed}")
        notes = tuple(images.flaws.sentences(len(found), str(self.path)))
        samples = check_data_set(inputs, targets, spec, target, str(self.path), files=files, notes=notes)
        return self._noted(samples, images)

    def _noted(self, samples: DataSet, images: ImageFolder) -> DataSet:
        """Log what is left out, if that has changed."""
        if images.flaws.numbers() != self._reported:
            report(samples.notes)
        self._reported = images.flaws.numbers()
        return samples


_NEEDED = {
    "class": "a folder of its own with images for each class",
    "mask": "images/NAME.jpg and masks/NAME.png",
    "labels": "images/ and labels.csv",
    "values": "images/ and values.csv",
    "none": "images",
}


def _unlabelled(images: ImageFolder, target: TargetSpec) -> list[Path]:
    """Return the images without looking at targets: those in `images`, if masks or a table lie beside it."""
    folder = images.path / IMAGES
    if target.kind not in ("mask", "labels", "values") or not folder.is_dir():
        return all_files(images)
    with _reading(images, folder):
        return list(images.files(folder))


def _targets_of(images: ImageFolder, target: TargetSpec) -> Mapping[Path, Any]:
    """Return the images with their targets; masks as files; None where there are none."""
    if target.kind == "class":
        return dict(class_files(images, target.names))
    if target.kind == "none":
        return anomalies(images, all_files(images))
    folder = images.path / IMAGES
    if not folder.is_dir():
        raise InvalidInput(
            f"{str(images.path)!r} has no folder {IMAGES!r}; for {target.describe()} it needs {_NEEDED[target.kind]}",
            field="data",
        )
    with _reading(images, folder):
        files = list(images.files(folder))
    return mask_files(images, files) if target.kind == "mask" else listed_targets(images, files, target)


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


class Masks:
    """The masks of images, by their file."""

    def __init__(self, files: Mapping[Path, Any], target: TargetSpec, storage: Storage) -> None:
        self.files, self._target = files, target
        self.rows = storage.rows("targets", target.shape, np.uint8, len(files))

    def read(self, image: Path) -> npt.NDArray[np.uint8]:
        """Return an image's mask; raise UnusableImage for one that is damaged, UnusableData for one that is wrong."""
        return read_mask(self.files[image], image, self._target)


def read_images(
    files: Sequence[Path],
    spec: InputSpec,
    flaws: Flaws,
    heartbeat: HeartbeatCallback = lambda: None,
    storage: Storage | None = None,
    masks: Masks | None = None,
) -> ReadImages:
    """Decode files, leaving out and counting those that cannot be used, themselves or their masks."""
    rows, readable = (storage or Storage()).rows("inputs", spec.shape, np.uint8, len(files)), list[Path]()
    for file in files:
        heartbeat()
        read = file
        try:
            image = decode_image(file, spec)
            if masks:
                read = masks.files[file]
                masks.rows.append(masks.read(file)[None])
        except UnusableImage as error:
            flaws.add(error.flaw, read, error.detail)
            continue
        for flaw in image.flaws:
            flaws.add(flaw, file)
        rows.append(image.pixels[None])
        readable.append(file)
    return ReadImages(inputs=rows.array(), files=tuple(readable))
