"""The data sets of the papers, and small ones included in scikit-learn, as plain arrays of raw samples.

Images stay uint8 [N, height, width, channels], features float32 [N, width]: preprocessing belongs to the plan and
to the ONNX graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from moonfed.bundle.manifest import InputSpec
from moonfed.bundle.target import NO_TARGET, TargetSpec, class_target
from moonfed.data.data_set import DataSet, Inputs, Labels, Targets
from moonfed.errors import InvalidInput, NotFound
from moonfed.experiments.strata import every_fifth

Images = npt.NDArray[np.uint8]
USUAL = 8  # the digit of `digit-anomalies` that is no anomaly; 0, say, is told apart by any method
TINY_IMAGENET_FOLDER = "tiny-imagenet-200"


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitDataSet:
    """A data set in two parts."""

    name: str
    train: DataSet
    test: DataSet
    sample: InputSpec | None = None  # None: as the arrays show it

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of classes, labels or values."""
        return self.train.classes

    @property
    def target(self) -> TargetSpec:
        """The target of a sample."""
        return self.train.target

    @property
    def input(self) -> InputSpec:
        """One raw sample."""
        shape = self.train.inputs.shape[1:]
        kind: Literal["image", "features"] = "image" if len(shape) == 3 else "features"
        return self.sample or InputSpec(kind=kind, shape=shape, table=self.train.table)


def split_arrays(
    name: str, classes: tuple[str, ...], train: tuple[Inputs, Labels], test: tuple[Inputs, Labels]
) -> SplitDataSet:
    """Return a data set of arrays: inputs [N, …] with labels [N]."""
    return _split(name, class_target(classes), train, test)


@dataclass(frozen=True, slots=True, kw_only=True)
class Preprocessing:
    """Mean and standard deviation, by channel of pixels scaled to 0 to 1 or of a series, or by feature."""

    mean: tuple[float, ...]
    deviation: tuple[float, ...]


# Of the authors' public code for CIFAR and Tiny-ImageNet; of the training pixels for the others.
_PREPROCESSING = {
    "digits": Preprocessing(mean=(0.306,), deviation=(0.376,)),
    "cifar10": Preprocessing(
        mean=(125.3 / 255, 123.0 / 255, 113.9 / 255), deviation=(63.0 / 255, 62.1 / 255, 66.7 / 255)
    ),
    "cifar100": Preprocessing(mean=(0.5071, 0.4865, 0.4409), deviation=(0.2673, 0.2564, 0.2762)),
    "fashion-mnist": Preprocessing(mean=(0.286,), deviation=(0.353,)),
    "mnist": Preprocessing(mean=(0.1307,), deviation=(0.3081,)),
    "tiny-imagenet": Preprocessing(mean=(0.5,), deviation=(0.5,)),
}
_PREPROCESSING |= {"digit-pairs": _PREPROCESSING["digits"]}
AUGMENTATIONS = {"cifar10": "crop-flip", "cifar100": "crop-flip-rotate"}


def preprocessing(data: SplitDataSet) -> Preprocessing:
    """Return a data set's usual preprocessing; that of a table is computed from its training samples."""
    if data.input.kind == "image":
        return _PREPROCESSING.get(data.name, Preprocessing(mean=(0.5,), deviation=(0.5,)))
    values = data.train.inputs.astype(np.float64)
    values = values.reshape(-1, values.shape[-1])  # of a series, by channel
    mean, deviation = values.mean(axis=0), values.std(axis=0)
    deviation = np.where(deviation > 0, deviation, 1.0)  # of a feature that never changes
    if data.train.table:  # categories are not normalised
        columns = data.train.table.columns
        numeric = np.repeat([not column.categories for column in columns], [column.width for column in columns])
        mean, deviation = np.where(numeric, mean, 0.0), np.where(numeric, deviation, 1.0)
    return Preprocessing(mean=tuple(mean.tolist()), deviation=tuple(deviation.tolist()))


def augmentation(name: str) -> str:
    """Return the augmentation of MOON's authors' code for a data set, by `moonfed.export.augmentation`'s names."""
    return AUGMENTATIONS.get(name, "none")


def load_dataset(name: str, root: Path | None, *, download: bool = False) -> SplitDataSet:
    """Load a data set by name from below `root`; those of scikit-learn need no root.

    Raises InvalidInput for an unknown name and NotFound if the files are missing and may not be downloaded.
    """
    if name not in LOADERS:
        raise InvalidInput(field="data set", value=name, allowed=f"one of {', '.join(LOADERS)}")
    if root is None and name not in BUNDLED:
        raise InvalidInput(
            f"data is not given; data set {name!r} needs --data, the folder with its files{_advice(name)}", field="data"
        )
    return LOADERS[name](root or Path(), download)


def _digits() -> SplitDataSet:
    """1,797 scanned digits of 8×8 pixels (scikit-learn's copy of UCI's test set); every fifth is for testing."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    images = np.round(bunch.images * (255 / 16)).astype(np.uint8)[..., None]  # scanned with 17 levels of grey
    return _every_fifth_for_testing("digits", images, bunch.target, tuple(str(digit) for digit in range(10)))


def _table(name: str, loader: str) -> Callable[[Path, bool], SplitDataSet]:
    """One of scikit-learn's tables: float32 features [N, width]."""

    def load(_root: Path, _download: bool) -> SplitDataSet:
        from sklearn import datasets

        bunch = getattr(datasets, loader)()
        classes = tuple(str(name) for name in bunch.target_names)
        return _every_fifth_for_testing(name, bunch.data.astype(np.float32), bunch.target, classes)

    return load


def _every_fifth_for_testing(name: str, inputs: Inputs, target: Labels, classes: tuple[str, ...]) -> SplitDataSet:
    labels = target.astype(np.int64)
    test = every_fifth(labels)
    return split_arrays(name, classes, (inputs[~test], labels[~test]), (inputs[test], labels[test]))


def _diabetes() -> SplitDataSet:
    """442 patients with ten measurements, and the progression of their disease a year later: a regression."""
    from sklearn.datasets import load_diabetes

    bunch = load_diabetes(scaled=False)
    inputs, values = bunch.data.astype(np.float32), bunch.target.astype(np.float32)[:, None]
    target = TargetSpec(kind="values", names=("progression",), shape=(1,))
    test = every_fifth(values[:, 0].astype(np.float64))
    return _split("diabetes", target, (inputs[~test], values[~test]), (inputs[test], values[test]))


def _digit_anomalies() -> SplitDataSet:
    """One digit of `digits-features` for training; for testing, more of it, and all other digits as anomalies."""
    data = LOADERS["digits-features"](Path(), False)
    train, tested = data.train.inputs[data.train.targets == USUAL], data.test.targets == USUAL
    others = data.train.inputs[data.train.targets != USUAL]
    anomalous = np.concatenate([~tested, np.ones(len(others), np.bool_)]).astype(np.uint8)
    return _split(
        "digit-anomalies",
        NO_TARGET,
        (train, np.zeros((len(train), 0), np.uint8)),
        (np.concatenate([data.test.inputs, others]), anomalous),
    )


def _digit_pairs() -> SplitDataSet:
    """Pairs of `digits`, side by side: 8×16 pixels with ten labels, of which one or two apply."""
    data, generator = _digits(), np.random.default_rng(0)
    parts = [_pairs(part, generator) for part in (data.train, data.test)]
    return _split("digit-pairs", TargetSpec(kind="labels", names=data.classes, shape=(10,)), *parts)


def _pairs(digits: DataSet, generator: np.random.Generator) -> tuple[Inputs, Targets]:
    """Pair each digit with another one."""
    others = generator.permutation(len(digits))
    targets = np.zeros((len(digits), len(digits.classes)), np.uint8)
    for each in (digits.labels, digits.labels[others]):
        targets[np.arange(len(digits)), each] = 1
    return np.concatenate([digits.inputs, digits.inputs[others]], axis=2), targets


def _split(name: str, target: TargetSpec, train: tuple[Inputs, Targets], test: tuple[Inputs, Targets]) -> SplitDataSet:
    parts = [DataSet(inputs=inputs, targets=targets, target=target, origin=name) for inputs, targets in (train, test)]
    return SplitDataSet(name=name, train=parts[0], test=parts[1])


def _from_torchvision(name: str, class_name: str) -> Callable[[Path, bool], SplitDataSet]:
    def load(root: Path, download: bool) -> SplitDataSet:
        from moonfed.export.torchvision_import import import_torchvision

        kind = getattr(import_torchvision().datasets, class_name)
        train, test = (_read(name, kind, root, train, download) for train in (True, False))
        arrays = [(_nhwc(part.data), np.asarray(part.targets, dtype=np.int64)) for part in (train, test)]
        return split_arrays(name, tuple(str(label).replace(",", "") for label in train.classes), *arrays)

    return load


def _read(name: str, kind: Any, root: Path, train: bool, download: bool) -> Any:  # noqa: ANN401 - torchvision is untyped
    try:
        return kind(str(root), train=train, download=download)
    except RuntimeError as error:
        raise NotFound(f"{root} does not hold {kind.__name__}'s files{_advice(name)}") from error


def _advice(name: str) -> str:
    if name == "tiny-imagenet":
        return "; unpack its archive there"
    return f"; `moonfed-experiments partition {name} --download --data FOLDER --output PARTS` fetches them"


def _nhwc(images: Any) -> Images:  # noqa: ANN401 - a tensor or an array, as the data set has it
    array = np.asarray(images, dtype=np.uint8)
    return array if array.ndim == 4 else array[..., None]


def _tiny_imagenet(root: Path, download: bool) -> SplitDataSet:
    """Tiny-ImageNet as its archive unpacks; its labelled `val` part is the test set."""
    folder = root if (root / "wnids.txt").is_file() else root / TINY_IMAGENET_FOLDER
    if not (folder / "wnids.txt").is_file():
        raise NotFound(
            f"{root} does not hold Tiny-ImageNet: {TINY_IMAGENET_FOLDER}/wnids.txt is missing"
            f"{_advice('tiny-imagenet')}",
            field="Tiny-ImageNet",
        )
    if download:
        raise InvalidInput("download is set; Tiny-ImageNet must be downloaded and unpacked by hand")
    classes = tuple((folder / "wnids.txt").read_text().split())
    index = {name: label for label, name in enumerate(classes)}
    train = [(path, index[name]) for name in classes for path in sorted((folder / "train" / name / "images").iterdir())]
    rows = [line.split("\t") for line in (folder / "val" / "val_annotations.txt").read_text().splitlines()]
    test = [(folder / "val" / "images" / row[0], index[row[1]]) for row in rows]
    return split_arrays("tiny-imagenet", classes, _decode(train), _decode(test))


def _decode(samples: Sequence[tuple[Path, int]]) -> tuple[Images, Labels]:
    from PIL import Image

    images = np.empty((len(samples), 64, 64, 3), dtype=np.uint8)
    for position, (path, _) in enumerate(samples):
        with Image.open(path) as image:
            images[position] = np.asarray(image.convert("RGB"))
    return images, np.asarray([label for _, label in samples], dtype=np.int64)


LOADERS: dict[str, Callable[[Path, bool], SplitDataSet]] = {
    "digits": lambda _root, _download: _digits(),
    "cifar10": _from_torchvision("cifar10", "CIFAR10"),
    "cifar100": _from_torchvision("cifar100", "CIFAR100"),
    "fashion-mnist": _from_torchvision("fashion-mnist", "FashionMNIST"),
    "mnist": _from_torchvision("mnist", "MNIST"),
    "tiny-imagenet": _tiny_imagenet,
    "breast-cancer": _table("breast-cancer", "load_breast_cancer"),
    "wine": _table("wine", "load_wine"),
    "digits-features": _table("digits-features", "load_digits"),
    "diabetes": lambda _root, _download: _diabetes(),
    "digit-anomalies": lambda _root, _download: _digit_anomalies(),
    "digit-pairs": lambda _root, _download: _digit_pairs(),
}
# With scikit-learn.
BUNDLED = ("digits", "breast-cancer", "wine", "digits-features", "diabetes", "digit-anomalies", "digit-pairs")
TASKS_OF: Mapping[str, str] = {  # of data sets; the others are classifications
    "diabetes": "regression",
    "digit-anomalies": "anomaly-detection",
    "digit-pairs": "multilabel",
}
