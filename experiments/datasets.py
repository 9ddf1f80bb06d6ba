"""The data sets of the papers, and a small one for the demo, as plain arrays of raw samples.

Images stay uint8 [N, height, width, channels]: preprocessing belongs to the plan and to the ONNX graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from moonfed.errors import InvalidInput, NotFound

Images = npt.NDArray[np.uint8]
Labels = npt.NDArray[np.int64]
TINY_IMAGENET_FOLDER = "tiny-imagenet-200"


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSet:
    """Raw samples [N, ...] with labels [N] that index `classes`."""

    name: str
    train_inputs: Images
    train_labels: Labels
    test_inputs: Images
    test_labels: Labels
    classes: tuple[str, ...]


def load_dataset(name: str, root: Path | None, *, download: bool = False) -> DataSet:
    """Loads a data set by name from below `root`; `digits` needs no root.

    Raises InvalidInput for an unknown name and NotFound where the files are not there and may not be downloaded.
    """
    if name not in LOADERS:
        raise InvalidInput(f"data set is {name!r}; it must be one of {', '.join(LOADERS)}")
    if root is None and name != "digits":
        raise InvalidInput(f"data is not given; data set {name!r} needs the folder that holds its files")
    return LOADERS[name](root or Path(), download)


def _digits() -> DataSet:
    """1,797 scanned digits of 8×8 pixels (scikit-learn's copy of UCI's test set); every fifth is for testing."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    images = np.round(bunch.images * (255 / 16)).astype(np.uint8)[..., None]  # scanned with 17 levels of grey
    labels = bunch.target.astype(np.int64)
    order = np.argsort(labels, kind="stable")  # so that every fifth is a fifth of every class
    test = np.zeros(len(labels), dtype=bool)
    test[order[::5]] = True
    return DataSet(
        name="digits",
        train_inputs=images[~test],
        train_labels=labels[~test],
        test_inputs=images[test],
        test_labels=labels[test],
        classes=tuple(str(digit) for digit in range(10)),
    )


def _from_torchvision(name: str, class_name: str) -> Callable[[Path, bool], DataSet]:
    def load(root: Path, download: bool) -> DataSet:
        from export.torchvision_import import import_torchvision

        kind = getattr(import_torchvision().datasets, class_name)
        train, test = (_read(kind, root, train, download) for train in (True, False))
        return DataSet(
            name=name,
            train_inputs=_nhwc(train.data),
            train_labels=np.asarray(train.targets, dtype=np.int64),
            test_inputs=_nhwc(test.data),
            test_labels=np.asarray(test.targets, dtype=np.int64),
            classes=tuple(str(label).replace(",", "") for label in train.classes),
        )

    return load


def _read(kind: Any, root: Path, train: bool, download: bool) -> Any:  # noqa: ANN401 - torchvision is untyped
    try:
        return kind(str(root), train=train, download=download)
    except RuntimeError as error:
        raise NotFound(f"{root} does not hold {kind.__name__}'s files; give their folder, or --download") from error


def _nhwc(images: Any) -> Images:  # noqa: ANN401 - a tensor or an array, as the data set has it
    array = np.asarray(images, dtype=np.uint8)
    return array if array.ndim == 4 else array[..., None]


def _tiny_imagenet(root: Path, download: bool) -> DataSet:
    """Tiny-ImageNet as its archive unpacks; its labelled `val` part is the test set, as in the papers."""
    folder = root if (root / "wnids.txt").is_file() else root / TINY_IMAGENET_FOLDER
    if not (folder / "wnids.txt").is_file():
        raise NotFound(f"{root} does not hold Tiny-ImageNet: {TINY_IMAGENET_FOLDER}/wnids.txt is missing")
    if download:
        raise InvalidInput("download is set; Tiny-ImageNet must be downloaded and unpacked by hand")
    classes = tuple((folder / "wnids.txt").read_text().split())
    index = {name: label for label, name in enumerate(classes)}
    train = [(path, index[name]) for name in classes for path in sorted((folder / "train" / name / "images").iterdir())]
    rows = [line.split("\t") for line in (folder / "val" / "val_annotations.txt").read_text().splitlines()]
    test = [(folder / "val" / "images" / row[0], index[row[1]]) for row in rows]
    train_inputs, train_labels = _decode(train)
    test_inputs, test_labels = _decode(test)
    return DataSet(
        name="tiny-imagenet",
        train_inputs=train_inputs,
        train_labels=train_labels,
        test_inputs=test_inputs,
        test_labels=test_labels,
        classes=classes,
    )


def _decode(samples: Sequence[tuple[Path, int]]) -> tuple[Images, Labels]:
    from PIL import Image

    images = np.empty((len(samples), 64, 64, 3), dtype=np.uint8)
    for position, (path, _) in enumerate(samples):
        with Image.open(path) as image:
            images[position] = np.asarray(image.convert("RGB"))
    return images, np.asarray([label for _, label in samples], dtype=np.int64)


LOADERS: dict[str, Callable[[Path, bool], DataSet]] = {
    "digits": lambda _root, _download: _digits(),
    "cifar10": _from_torchvision("cifar10", "CIFAR10"),
    "cifar100": _from_torchvision("cifar100", "CIFAR100"),
    "fashion-mnist": _from_torchvision("fashion-mnist", "FashionMNIST"),
    "mnist": _from_torchvision("mnist", "MNIST"),
    "tiny-imagenet": _tiny_imagenet,
}
