"""A user's own samples: a folder of images, a table, an .npz file or a function, and what is needed to read them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from moonfed.bundle.manifest import CLASSIFICATION, InputSpec
from moonfed.bundle.target import UNKNOWN, TargetSpec, class_target
from moonfed.data.data_set import DataSet
from moonfed.data.folder import class_folders
from moonfed.data.formats import FOLDER, FUNCTION, NPZ, TABLES, kind_of
from moonfed.data.image_folder import ImageFolder, check_ignored
from moonfed.data.npz import infer_input, read_arrays
from moonfed.data.open_source import open_source
from moonfed.errors import InvalidInput
from moonfed.experiments.datasets import SplitDataSet
from moonfed.experiments.strata import is_anomalous, train_and_test
from moonfed.export.bundle_recipe import read_classes, read_input, read_names, read_samples
from moonfed.export.table_description import TableDescription, read_description
from moonfed.export.table_inference import ColumnChoices, infer_description
from moonfed.files import require_file
from moonfed.tasks import TASKS


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnData:
    """The user's samples. InvalidInput names an option that does not apply to them.

    Of .npz files, `input` and names that are empty are as the arrays show them.
    """

    text: str  # see moonfed.data.formats
    task: str = CLASSIFICATION.name
    target: str = ""  # columns of a table with the targets, with commas between them; empty: those of `columns`
    columns: str = ""  # a description of a table; empty: it is inferred
    input: str = ""  # HxWxC, features:N, series:LxC or tokens:L; of images and functions
    classes: str = ""  # names or their number; of functions and .npz files
    values: str = ""  # likewise, of values
    horizon: str = ""  # steps of a forecast, likewise
    vocabulary: str = ""  # the file of a vocabulary
    ignored_folders: tuple[str, ...] = ()  # of images

    def __post_init__(self) -> None:
        for option, value, kinds in (
            ("target", self.target, TABLES),
            ("columns", self.columns, TABLES),
            ("input", self.input, (FOLDER, FUNCTION) if self.has_classes else (FOLDER, FUNCTION, NPZ)),
            ("classes", self.classes, (NPZ, FUNCTION) if self.has_classes else (NPZ, FUNCTION, FOLDER)),
            ("values", self.values, (NPZ, FUNCTION, FOLDER)),
            ("horizon", self.horizon, (NPZ, FUNCTION)),
            ("vocabulary", self.vocabulary, (NPZ, FUNCTION, FOLDER)),
            ("ignore-folder", ", ".join(self.ignored_folders), (FOLDER,)),
        ):
            if value and self.kind not in kinds:
                raise InvalidInput(
                    field=option, value=value, rest=f", which does not apply to {self.text!r}; leave it out"
                )
        check_ignored(self.ignored_folders)

    @property
    def kind(self) -> str:
        """The format of the samples, of moonfed.data.formats."""
        return kind_of(self.text)

    @property
    def has_classes(self) -> bool:
        """True if each sample has one class."""
        return TASKS.select(self.task).target == "class"

    def describe_table(self) -> TableDescription:
        """Return the description of a table: the given one, or one inferred from all of its rows."""
        return _described(self)

    def images(self) -> ImageFolder:
        """Return the folder of images."""
        return ImageFolder(Path(self.text), self.ignored_folders)

    def class_names(self) -> tuple[str, ...]:
        """Return the names of the folders of images, which are the classes."""
        names = tuple(folder.name for folder in class_folders(self.images()))
        if len(names) < 2:
            raise InvalidInput(
                field="data",
                value=self.text,
                rest=f"; it must have a folder for each of at least two classes; it has {len(names)}",
            )
        return names

    def read(self) -> DataSet:
        """Read all samples with their targets."""
        return self._read(*self._form())

    def read_split(self, name: str) -> SplitDataSet:
        """Read all samples; some of them are for testing, see `train_and_test`."""
        spec, target = self._form()
        return split_samples(name, self._read(spec, target), spec)

    def _form(self) -> tuple[InputSpec, TargetSpec]:
        if self.kind in TABLES:
            described = self.describe_table()
            _require_task(described.target, self.task, self.text)
            return described.input, described.target
        if self.has_classes:
            spec, classes = _FORMS[self.kind](self)
            return spec, class_target(classes)
        names = ("input", "classes", "values", "horizon", "vocabulary")
        given = {name: getattr(self, name) for name in names if getattr(self, name)}
        samples = read_samples(None, {**self._shown(), **given}, self.task)
        return samples.input, samples.target

    def _shown(self) -> dict[str, str]:
        """Return what the arrays of an .npz file show about samples."""
        if self.kind != NPZ:
            return {}
        require_file("data", Path(self.text))
        inputs, targets = read_arrays(Path(self.text))
        sides = "x".join(map(str, inputs.shape[1:]))
        found = {"input": f"{ {2: 'features:', 3: 'series:'}.get(inputs.ndim, '') }{sides}"}
        if self.vocabulary:
            found["input"] = f"tokens:{sides}"
        kind = TASKS[self.task].target
        if targets is None or kind in ("none", "next"):
            return found
        if kind == "mask":
            known = targets[targets != UNKNOWN]
            return found | {"classes": str(max(2, int(known.max()) + 1 if known.size else 2))}
        found |= {"values" if kind == "values" else "classes": str(targets.shape[-1])}
        return found | ({"horizon": str(targets.shape[1])} if kind == "values" and targets.ndim == 3 else {})

    def _read(self, spec: InputSpec, target: TargetSpec) -> DataSet:
        samples = open_source(self.text, self.target, ignored_folders=self.ignored_folders).read(spec, target)
        samples.require_samples()
        return samples


def _require_task(target: TargetSpec, task: str, text: str) -> None:
    if TASKS.select(task).target != target.kind:
        raise InvalidInput(
            f"task is {task!r}, but the target of {text} is {target.describe()}; it must be {_task_of(target)!r}",
            field="task",
            value=task,
        )


def usual_task(columns: str) -> str:
    """Return the task that a table's description, if there is one, has a target for; or else classification."""
    return _task_of(read_description(Path(columns)).target) if columns else CLASSIFICATION.name


def _task_of(target: TargetSpec) -> str:
    return next(name for name in TASKS if TASKS[name].target == target.kind)


def split_samples(name: str, samples: DataSet, spec: InputSpec | None = None) -> SplitDataSet:
    """Split samples in two: see `train_and_test`. Training samples of an anomaly detection have no targets."""
    if samples.file and samples.rows is None:  # of an .npz file, for `by`
        samples = replace(samples, rows=np.arange(len(samples)))
    train, tested = (samples.take(rows) for rows in train_and_test(samples))
    if samples.target.is_input:
        train = replace(train, targets=None)
        tested = tested if is_anomalous(tested).any() else replace(tested, targets=None)
    return SplitDataSet(name=name, train=train, test=tested, sample=spec)


@lru_cache(maxsize=1)
def _described(data: OwnData) -> TableDescription:
    if data.columns:
        return read_description(Path(data.columns))
    targets = (data.target,) if data.has_classes else tuple(read_names("target", data.target) if data.target else ())
    return infer_description(
        Path(data.text), ColumnChoices(targets=targets if data.target else (), task=data.task, ask=False)
    )


def require_none(options: Mapping[str, str], where: str) -> None:
    """Raise InvalidInput for an option that describes own data, where there are none."""
    for option, value in options.items():
        if value:
            raise InvalidInput(field=option, value=value, rest=f", which does not apply to {where}; leave it out")


def _folder_form(data: OwnData) -> tuple[InputSpec, tuple[str, ...]]:
    if not data.input:
        raise InvalidInput("input is missing; it must be the images' size, such as 32x32x3", field="input")
    return read_input(data.input), data.class_names()


def _npz_form(data: OwnData) -> tuple[InputSpec, tuple[str, ...]]:
    require_file("data", Path(data.text))
    spec, number = infer_input(Path(data.text))
    return spec, read_classes(data.classes or str(number))


def _function_form(data: OwnData) -> tuple[InputSpec, tuple[str, ...]]:
    for option, value in (("input", data.input), ("classes", data.classes)):
        if not value:
            raise InvalidInput(f"{option} is missing; {data.text!r} needs it as an argument", field=option)
    return read_input(data.input), read_classes(data.classes)


_FORMS: dict[str, Callable[[OwnData], tuple[InputSpec, tuple[str, ...]]]] = {
    FOLDER: _folder_form,
    NPZ: _npz_form,
    FUNCTION: _function_form,
}
