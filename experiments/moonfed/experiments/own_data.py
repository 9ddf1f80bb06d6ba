"""A user's own samples: a folder of images, a table, an .npz file or a function, and what is needed to read them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from moonfed.bundle.manifest import InputSpec
from moonfed.bundle.target import class_target
from moonfed.data.data_set import DataSet
from moonfed.data.folder import class_folders
from moonfed.data.formats import FOLDER, FUNCTION, NPZ, TABLES, kind_of
from moonfed.data.image_folder import ImageFolder, check_ignored
from moonfed.data.npz import infer_input
from moonfed.data.open_source import open_source
from moonfed.errors import InvalidInput
from moonfed.experiments.datasets import SplitDataSet, test_rows
from moonfed.export.bundle_recipe import read_classes, read_input
from moonfed.export.table_description import TableDescription, read_description
from moonfed.export.table_inference import ColumnChoices, infer_description
from moonfed.files import require_file


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnData:
    """The user's samples. InvalidInput names an option that does not apply to them."""

    text: str  # see moonfed.data.formats
    target: str = ""  # column of a table with the labels; empty: that of `columns`
    columns: str = ""  # a description of a table; empty: it is inferred
    input: str = ""  # HxWxC or features:N; of images and functions
    classes: str = ""  # names or their number; of functions and .npz files
    ignored_folders: tuple[str, ...] = ()  # of images

    def __post_init__(self) -> None:
        for option, value, kinds in (
            ("target", self.target, TABLES),
            ("columns", self.columns, TABLES),
            ("input", self.input, (FOLDER, FUNCTION)),
            ("classes", self.classes, (NPZ, FUNCTION)),
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
        """Read all samples with their labels."""
        spec, classes = _FORMS[self.kind](self)
        samples = open_source(self.text, self.target, ignored_folders=self.ignored_folders).read(
            spec, class_target(classes)
        )
        samples.require_samples()
        return samples

    def read_split(self, name: str) -> SplitDataSet:
        """Read all samples; every fifth of every class is for testing."""
        return split_samples(name, self.read())


def split_samples(name: str, samples: DataSet) -> SplitDataSet:
    """Split samples in two: every fifth of every class is for testing."""
    test = test_rows(samples.labels)
    train, held_out = (samples.take(np.flatnonzero(rows)) for rows in (~test, test))
    return SplitDataSet(name=name, train=train, test=held_out)


@lru_cache(maxsize=1)
def _described(data: OwnData) -> TableDescription:
    if data.columns:
        return read_description(Path(data.columns))
    return infer_description(Path(data.text), ColumnChoices(targets=(data.target,) if data.target else (), ask=False))


def require_none(options: Mapping[str, str], where: str) -> None:
    """Raise InvalidInput for an option that describes own data, where there are none."""
    for option, value in options.items():
        if value:
            raise InvalidInput(field=option, value=value, rest=f", which does not apply to {where}; leave it out")


def _table_form(data: OwnData) -> tuple[InputSpec, tuple[str, ...]]:
    described = data.describe_table()
    return described.input, described.target.names


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
    **dict.fromkeys(TABLES, _table_form),
    FOLDER: _folder_form,
    NPZ: _npz_form,
    FUNCTION: _function_form,
}
