"""The recipe of a bundle, checked before anything is built, and the settings of a method by name."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from moonfed.bundle.manifest import CLASSIFICATION, InputSpec
from moonfed.bundle.target import TargetSpec, class_target
from moonfed.data.data_set import Inputs
from moonfed.data.open_source import open_source
from moonfed.data.source import IGNORED
from moonfed.errors import InvalidInput
from moonfed.export.methods import METHODS
from moonfed.export.methods.method import Method
from moonfed.export.model_zoo import PROJECTION, has_own_head
from moonfed.export.optimiser import Optimiser, read_optimiser
from moonfed.export.table_description import read_description
from moonfed.plan.training_spec import TrainingSpec
from moonfed.registry import Value, read_value, setting_types
from moonfed.server_rules.mean import MeanRule
from moonfed.server_rules.server_rule import ServerRule
from moonfed.tasks import TASKS
from moonfed.tasks.task import Task

INPUTS = ("image", "features", "series", "tokens")
TARGETS: Mapping[str, str] = {  # in words
    "class": "classes",
    "labels": "labels",
    "values": "values",
    "mask": "masks",
    "none": "no targets",
    "next": "the next token",
}
Projection = int | None | Literal["default"]  # the head's output; None: no head; see `default_projection`
Settings = Mapping[str, float | int | str]
DEFAULT_BATCH_SIZE = 64  # Li, He, Song (CVPR 2021), section 4.1
ADVICE = "`moonfed-export methods` lists them with their defaults"


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleRecipe:
    """A model, a method and their settings. `settings` may hold numbers or, as on a command line, their text."""

    name: str
    model: str
    input: InputSpec
    target: TargetSpec
    task: str = CLASSIFICATION.name
    method: str = "fedavg"
    settings: Settings = field(default_factory=dict)
    optimiser: str = "sgd"
    schedules: Mapping[str, str] = field(default_factory=dict)  # of hyperparameters: see moonfed.export.schedule
    mean: tuple[float, ...] | None = None  # one per channel (of pixels in [0, 1]) or per feature, or a single one
    deviation: tuple[float, ...] | None = None
    augmentation: str = "none"
    projection: Projection = "default"
    server_rule: ServerRule = field(default_factory=MeanRule)
    seed: int = 0
    examples: Inputs | None = None  # raw samples, for the checks; None: random ones

    def __post_init__(self) -> None:
        wanted = TASKS.select(self.task).target
        if self.target.kind != wanted:
            raise InvalidInput(
                f"task is {self.task!r} and the target {self.target.describe()}; it must be {TARGETS[wanted]}",
                field="task",
                value=self.task,
            )
        needed = {"mask": ("image",), "next": ("tokens",)}.get(self.target.kind, INPUTS)
        if self.input.kind not in needed:
            raise InvalidInput(
                f"task is {self.task!r} and input.kind {self.input.kind!r}; it must be {' or '.join(needed)}",
                field="input.kind",
                value=self.input.kind,
            )
        if self.target.kind == "mask" and self.target.shape != self.input.shape[:2]:
            raise InvalidInput(
                field="target.shape", value=self.target.shape, allowed=f"the images' sides, {self.input.shape[:2]}"
            )

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of classes, labels or values."""
        return self.target.names

    @property
    def head(self) -> int | None:
        """The projection head's output; None: no head."""
        return default_projection(self.model, self.method) if self.projection == "default" else self.projection


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodSettings:
    """Task, method, optimiser and local training: everything that `settings` can change."""

    task: Task
    method: Method
    optimiser: Optimiser
    training: TrainingSpec

    def __post_init__(self) -> None:
        owners = (type(self.optimiser), TrainingSpec, type(self.task))
        taken = {item.name for owner in owners for item in fields(owner)}
        for key in [*(item.name for item in fields(self.method)), *self.method.hyperparameters()]:  # type: ignore[arg-type]
            if key in taken:
                raise InvalidInput(
                    f"{type(self.method).__name__} has a setting or hyperparameter named {key!r}, which is the name of "
                    "one of the task's, optimiser's or training loop's; give it another name",
                    field="hyperparameter",
                    value=key,
                )

    @property
    def hyperparameters(self) -> dict[str, float]:
        """The plan's hyperparameters: those of the optimiser and of the objective."""
        return self.optimiser.hyperparameters() | self.method.hyperparameters()


def default_projection(model: str, method: str) -> int | None:
    """Return the output of a network's projection head: a method that compares no representations needs none."""
    return PROJECTION if has_own_head(model) or METHODS[method].compares_representations else None


def read_settings(
    method: str, settings: Settings, optimiser: str = "sgd", task: str = CLASSIFICATION.name
) -> MethodSettings:
    """Read the settings of a task, a method and its optimiser; missing ones keep the papers' values.

    Raises InvalidInput for an unknown task, method or optimiser, an unknown setting or a value that is not allowed.
    """
    tasks = TASKS.select(task)
    chosen = read_optimiser(optimiser)
    if method not in METHODS:
        raise InvalidInput(field="method", value=method, allowed=f"one of {', '.join(METHODS)}; {ADVICE}")
    if METHODS[method].assumes_sgd and optimiser != "sgd":
        raise InvalidInput(
            field="optimiser",
            value=optimiser,
            rest=f"; with method {method!r}, whose results follow from steps of SGD, it must be 'sgd'",
        )
    owners: dict[str, type[Any]] = {
        item.name: owner
        for owner in (METHODS[method], chosen, TrainingSpec, tasks)
        for item in fields(owner)
        if item.name != "hyperparameters"
    }
    values: dict[type[Any], dict[str, Value]] = {METHODS[method]: {}, chosen: {}, TrainingSpec: {}, tasks: {}}
    for key, value in {**default_training(method), **settings}.items():
        if key not in owners:
            known = ", ".join(sorted(owners))
            raise InvalidInput(
                f"setting {key!r} (= {value!r}) is unknown; {method} with {optimiser} has {known}; {ADVICE}"
            )
        values[owners[key]][key] = read_value(key, value, setting_types(owners[key])[key])
    return MethodSettings(
        task=tasks(**values[tasks]),
        method=METHODS[method](**values[METHODS[method]]),
        optimiser=chosen(**values[chosen]),  # type: ignore[arg-type]
        training=TrainingSpec(**values[TrainingSpec]),  # type: ignore[arg-type]
    )


def read_federated(method: str) -> str:
    """Return the name of a method for a fleet; raise InvalidInput for any other."""
    if method not in METHODS:
        known = ", ".join(name for name in METHODS if METHODS[name].exchanges)
        raise InvalidInput(field="method", value=method, allowed=f"one of {known}; {ADVICE}")
    if not METHODS[method].exchanges:
        raise InvalidInput(
            field="method",
            value=method,
            rest=(", whose devices exchange nothing, so it needs no bundle; `moonfed-experiments simulate` trains it"),
        )
    return method


def default_training(method: str) -> dict[str, int]:
    """Return the default settings of the device's training loop."""
    return {"epochs": METHODS[method].default_epochs, "batch_size": DEFAULT_BATCH_SIZE}


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleRecipe:
    """The samples of a bundle."""

    input: InputSpec
    target: TargetSpec
    mean: tuple[float, ...] | None
    deviation: tuple[float, ...] | None


def read_samples(columns: Path | None, options: Mapping[str, str | None]) -> SampleRecipe:
    """Read the samples from a description of columns, or from the options input, classes, mean and std."""
    given = {name: text for name, text in options.items() if text is not None}
    if columns is not None:
        if given:
            name, text = next(iter(given.items()))
            raise InvalidInput(
                field=name, value=text, rest="; with --columns, which describes it, it must not be given"
            )
        described = read_description(columns)
        return SampleRecipe(
            input=described.input, target=described.target, mean=described.mean, deviation=described.deviation
        )
    for name in ("input", "classes"):
        if name not in given:
            raise InvalidInput(f"{name} is missing; give --input and --classes, or for tables --columns", field=name)
    return SampleRecipe(
        input=read_input(given["input"]),
        target=class_target(read_classes(given["classes"])),
        mean=read_numbers("mean", given.get("mean")),
        deviation=read_numbers("std", given.get("std")),
    )


def read_examples(text: str, samples: SampleRecipe) -> Inputs:
    """Read raw samples from what `text` names, see `moonfed.data.formats`; InvalidInput if there are none."""
    found = open_source(text).read(samples.input, samples.target, labels=IGNORED)
    found.require_samples()
    return found.inputs


def read_input(text: str) -> InputSpec:
    """Parse `32x32x3` (an image's height, width, channels) or `features:30`; raise InvalidInput for anything else."""
    if match := re.fullmatch(r"(\d+)x(\d+)x(\d+)", text):
        return InputSpec(kind="image", shape=tuple(int(side) for side in match.groups()))
    if match := re.fullmatch(r"features:(\d+)", text):
        return InputSpec(kind="features", shape=(int(match[1]),))
    raise InvalidInput(field="input", value=text, allowed="HEIGHTxWIDTHxCHANNELS, such as 32x32x3, or features:COUNT")


def read_classes(text: str) -> tuple[str, ...]:
    """Parse class names such as `cat,dog,"bird, other"`, or a number N for classes named 0 to N-1."""
    if text.isdecimal():
        return tuple(str(index) for index in range(int(text)))
    try:
        cells = next(csv.reader([text], skipinitialspace=True, strict=True))
    except csv.Error as error:
        raise InvalidInput(field="classes", value=text, rest=f", in which quotes are wrong: {error}") from error
    names = tuple(name.strip() for name in cells)
    if not (names and all(names)):
        raise InvalidInput(
            field="classes",
            value=text,
            rest=(
                ", in which a name is empty; give names with commas between them, and those that hold a "
                "comma in double quotes"
            ),
        )
    return names


def read_numbers(name: str, text: str | None) -> tuple[float, ...] | None:
    """Parse numbers such as `0.49,0.48,0.45`; return None for None."""
    if text is None:
        return None
    try:
        return tuple(float(number) for number in text.split(","))
    except ValueError as error:
        raise InvalidInput(field=name, value=text, allowed="numbers with commas between them") from error


def read_projection(text: str | None) -> Projection:
    """Parse the projection head's width, or `none` for no head; None: the method's default."""
    if text is None:
        return "default"
    if text == "none":
        return None
    if text.isdecimal() and int(text) >= 1:
        return int(text)
    raise InvalidInput(field="projection", value=text, allowed="a whole number from 1, or none")
