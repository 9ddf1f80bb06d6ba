"""The recipe of a bundle, checked before anything is built, and the settings of a method by name."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

from moonfed.bundle.manifest import CLASSIFICATION, CONSTANT, RANKS, InputSpec
from moonfed.bundle.target import NO_TARGET, TargetSpec, class_target
from moonfed.data.data_set import Inputs, Targets
from moonfed.data.open_source import open_source
from moonfed.data.source import IF_PRESENT, IGNORED
from moonfed.errors import InvalidInput
from moonfed.export.methods import METHODS
from moonfed.export.methods.method import Method
from moonfed.export.model_zoo import PROJECTION, has_own_head
from moonfed.export.optimiser import PERSONAL_SHARE, Optimiser, read_optimiser
from moonfed.export.table_description import read_description, rounded_scale
from moonfed.export.weights.pretrained import PretrainedWeights, common_normalisation
from moonfed.export.weights.tokenizer import TOKENIZER_FILE, tokenizer_vocabulary
from moonfed.files import require_file
from moonfed.formatting import count
from moonfed.plan.training_spec import TrainingSpec
from moonfed.registry import Value, read_value, setting_types
from moonfed.server_rules.mean import MeanRule
from moonfed.server_rules.server_rule import ServerRule
from moonfed.tasks import TASKS
from moonfed.tasks.task import Task

INPUTS = ("image", "features", "series", "tokens")
INPUTS_OF: Mapping[str, tuple[str, ...]] = {"mask": ("image",), "none": INPUTS[:-1], "next": ("tokens",)}
TARGETS: Mapping[str, str] = {  # in words
    "class": "classes",
    "labels": "labels",
    "values": "values",
    "mask": "masks",
    "none": "no targets",
    "next": "the next token",
}
TARGET_OPTIONS: Mapping[str, tuple[str, ...]] = {  # those of a target, by its kind; the first must be given
    "class": ("classes",),
    "mask": ("classes",),
    "labels": ("classes",),
    "values": ("values", "horizon", "target-mean", "target-std"),
    "none": (),
    "next": (),
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
    weights: PretrainedWeights | None = None  # that the model starts from; None: random ones
    freeze: str = ""  # tensors that are not trained: see moonfed.export.tensor_parts; empty: none
    personal: str = ""  # tensors that each device keeps to itself: likewise
    lora: str = ""  # low-rank changes of the encoder's layers: see moonfed.export.lora; empty: none
    examples: Inputs | None = None  # raw samples, for the checks; None: random ones

    def __post_init__(self) -> None:
        wanted = TASKS.select(self.task).target
        if self.target.kind != wanted:
            raise InvalidInput(
                f"task is {self.task!r} and the target {self.target.describe()}; it must be {TARGETS[wanted]}",
                field="task",
                value=self.task,
            )
        _require_input(self.task, self.input)
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

    def starting_from(self, weights: PretrainedWeights | None) -> BundleRecipe:
        """Return the recipe with these weights and the normalisation that they expect.

        Raises InvalidInput if the recipe has another one, or tokens other than the weights' tokenizer.
        """
        if weights is None:
            return self
        if self.input.kind == "tokens" and weights.tokenizer:
            _require_same_tokens(self.input.vocabulary, read_vocabulary(weights.tokenizer), weights)
        mean, deviation = common_normalisation(weights, self.mean, self.deviation)
        return replace(self, weights=weights, mean=mean, deviation=deviation)


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodSettings:
    """Task, method, optimiser and local training: everything that `settings` can change."""

    task: Task
    method: Method
    optimiser: Optimiser
    training: TrainingSpec

    def __post_init__(self) -> None:
        if self.optimiser.personal_epochs >= self.training.epochs > 0 < self.optimiser.personal_epochs:
            raise InvalidInput(
                field="personal_epochs",
                value=self.optimiser.personal_epochs,
                allowed=f"less than epochs, which is {self.training.epochs}",
            )
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
        first = self.optimiser.personal_epochs
        share = {PERSONAL_SHARE: first / self.training.epochs} if first else {}
        return self.optimiser.hyperparameters() | self.method.hyperparameters() | share


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
    step_schedule = settings.get("step_schedule", CONSTANT)
    if METHODS[method].assumes_sgd and step_schedule != CONSTANT:
        raise InvalidInput(
            field="step_schedule",
            value=step_schedule,
            rest=f"; with method {method!r}, whose results follow from equal steps, it must be {CONSTANT!r}",
        )
    if METHODS[method].assumes_sgd and settings.get("personal_epochs", 0):
        raise InvalidInput(
            field="personal_epochs",
            value=settings["personal_epochs"],
            rest=f"; with method {method!r}, whose results follow from equal steps, it must be 0",
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
    """The samples of a bundle, and what a model is to predict for them."""

    task: str
    input: InputSpec
    target: TargetSpec
    mean: tuple[float, ...] | None
    deviation: tuple[float, ...] | None


def read_samples(columns: Path | None, options: Mapping[str, str | None], task: str | None = None) -> SampleRecipe:
    """Read a task's samples from a description of columns, or from options, by their names without dashes.

    `task`: None for the one of the columns, or else classification.
    """
    given = {name: text for name, text in options.items() if text is not None}
    if columns is not None:
        if given:
            name, text = next(iter(given.items()))
            raise InvalidInput(
                field=name, value=text, rest="; with --columns, which describes it, it must not be given"
            )
        described = read_description(columns)
        return SampleRecipe(
            task=task or next(name for name in TASKS if TASKS[name].target == described.target.kind),
            input=described.input,
            target=described.target,
            mean=described.mean,
            deviation=described.deviation,
        )
    task = task or CLASSIFICATION.name
    kind = TASKS.select(task).target
    _require_options_of(task, given)
    sample = read_input(given["input"], given.get("vocabulary"))
    _require_input(task, sample)
    return SampleRecipe(
        task=task,
        input=sample,
        target=_read_target(kind, sample, given),
        mean=read_numbers("mean", given.get("mean")),
        deviation=read_numbers("std", given.get("std")),
    )


def _require_options_of(task: str, given: Mapping[str, str]) -> None:
    """Raise InvalidInput for an option of another task's targets, and for one that is missing."""
    kind = TASKS.select(task).target
    options = TARGET_OPTIONS[kind]
    needed = ("input", *options[:1], *(("vocabulary",) if kind == "next" else ()))
    named = " and ".join(f"--{name}" for name in needed)
    for name in {name: None for each in TARGET_OPTIONS.values() for name in each}:
        if name in given and name not in options:
            raise InvalidInput(
                field=name, value=given[name], rest=f"; it must not be given with task {task!r}, which takes {named}"
            )
    for name in needed:
        if name not in given:
            tables = "" if kind in ("mask", "next") else ", or for tables --columns"
            raise InvalidInput(f"{name} is missing; with task {task!r}, give {named}{tables}", field=name)


def _require_input(task: str, sample: InputSpec) -> None:
    needed = INPUTS_OF.get(TASKS.select(task).target, INPUTS)
    if sample.kind not in needed:
        raise InvalidInput(
            f"task is {task!r} and input.kind {sample.kind!r}; it must be {' or '.join(needed)}",
            field="input.kind",
            value=sample.kind,
        )


def _read_target(kind: str, sample: InputSpec, given: Mapping[str, str]) -> TargetSpec:
    if kind == "class":
        return class_target(read_names("classes", given["classes"]))
    if kind == "mask":
        return TargetSpec(kind="mask", names=read_names("classes", given["classes"]), shape=sample.shape[:2])
    if kind == "labels":
        names = read_names("classes", given["classes"])
        return TargetSpec(kind="labels", names=names, shape=(len(names),))
    if kind == "values":
        return _read_values(given)
    return TargetSpec(kind="next", shape=(0,)) if kind == "next" else NO_TARGET


def _read_values(given: Mapping[str, str]) -> TargetSpec:
    """Read `price:EUR,area`: the names of values, with their units, if they have any."""
    pairs = [name.rpartition(":") if ":" in name else (name, "", "") for name in read_names("values", given["values"])]
    names, units = tuple(name.strip() for name, _, _ in pairs), tuple(unit.strip() for _, _, unit in pairs)
    if not all(names):
        raise InvalidInput(field="values", value=given["values"], allowed="names, such as price:EUR,area")
    steps = given.get("horizon")
    if steps is not None and not (steps.isdecimal() and int(steps) >= 1):
        raise InvalidInput(field="horizon", value=steps, allowed="a whole number from 1: the steps of a forecast")
    return TargetSpec(
        kind="values",
        names=names,
        shape=(len(names),) if steps is None else (int(steps), len(names)),
        units=units if any(units) else (),
        mean=_for_each("target-mean", given, len(names)),
        deviation=_for_each("target-std", given, len(names)),
    )


def _for_each(name: str, given: Mapping[str, str], count: int) -> tuple[float, ...]:
    """Read one number for each value, or a single one for all."""
    numbers = read_numbers(name, given.get(name)) or ()
    if len(numbers) not in (0, 1, count):
        raise InvalidInput(field=name, value=given[name], allowed=f"one number, or one for each of the {count} values")
    return numbers * count if len(numbers) == 1 else numbers


def read_examples(text: str, samples: SampleRecipe) -> tuple[Inputs, SampleRecipe]:
    """Read raw samples from what `text` names, see `moonfed.data.formats`; InvalidInput if there are none.

    The samples' recipe is returned with the mean and deviation of the examples' values, where it has none.
    """
    scaled = samples.target.kind == "values" and not (samples.target.mean and samples.target.deviation)
    found = open_source(text).read(samples.input, samples.target, labels=IF_PRESENT if scaled else IGNORED)
    found.require_samples()
    if not scaled or found.targets is None:
        return found.inputs, samples
    return found.inputs, replace(samples, target=scaled_target(samples.target, found.targets))


def scaled_target(target: TargetSpec, values: Targets) -> TargetSpec:
    """Return the target with the mean and the deviation of these values [N, …, T], where it has none."""
    rows = values.reshape(-1, values.shape[-1]).astype("float64")
    scales = [rounded_scale(float(each.mean()), float(each.std())) for each in rows.T]
    return replace(
        target,
        mean=target.mean or tuple(scale.mean for scale in scales),
        deviation=target.deviation or tuple(scale.deviation for scale in scales),
    )


def read_input(text: str, vocabulary: str | None = None) -> InputSpec:
    """Parse a raw sample; raise InvalidInput for anything else.

    `32x32x3`: an image's height, width and channels. `features:30`. `series:96x7`: length and channels. `tokens:64`,
    with the file of a `vocabulary`.
    """
    kind, _, sides = text.rpartition(":")
    shape = tuple(int(side) for side in sides.split("x")) if re.fullmatch(r"[0-9]+(x[0-9]+)*", sides) else ()
    kind = kind or ("image" if ":" not in text else "")
    if kind not in RANKS or len(shape) != RANKS[kind]:
        raise InvalidInput(
            field="input",
            value=text,
            allowed="HEIGHTxWIDTHxCHANNELS, such as 32x32x3, features:COUNT, series:LENGTHxCHANNELS or tokens:LENGTH",
        )
    if kind == "tokens" and vocabulary is None:
        raise InvalidInput(f"vocabulary is missing; with input {text!r}, give --vocabulary", field="vocabulary")
    if kind != "tokens" and vocabulary is not None:
        raise InvalidInput(field="vocabulary", value=vocabulary, rest=f"; it belongs to tokens, and input is {text!r}")
    tokens = () if vocabulary is None else read_vocabulary(Path(vocabulary))
    return InputSpec(kind=kind, shape=shape, vocabulary=tokens)  # type: ignore[arg-type]


def read_vocabulary(path: Path) -> tuple[str, ...]:
    """Read tokens: a JSON list of texts, a tokenizer.json, or one on each line. The first is padding, perhaps empty."""
    require_file("vocabulary", path)
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path} is not UTF-8; save the vocabulary as UTF-8", field="vocabulary") from error
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, dict):
        return tokenizer_vocabulary(found, path)
    if not isinstance(found, list):
        if path.suffix.lower() == ".json":
            raise InvalidInput(
                field="vocabulary",
                value=path,
                allowed="a JSON list of texts, a tokenizer.json, or a text file with one token on each line",
            )
        lines = text.split("\n")
        found = [line.removesuffix("\r") for line in (lines[:-1] if lines[-1] == "" else lines)]
    for place, token in enumerate(found, start=1):
        if not isinstance(token, str) or (not token and place > 1):
            raise InvalidInput(
                f"{path} has the token {token!r} in place {place}; each must be text that is not empty",
                field="token",
                value=token,
            )
    seen = set[str]()
    for place, token in enumerate(found, start=1):
        if token in seen:
            raise InvalidInput(
                f"{path} has the token {token!r} twice, the second time in place {place}; tokens must differ",
                field="token",
                value=token,
            )
        seen.add(token)
    return tuple(found)


def _require_same_tokens(given: tuple[str, ...], stated: tuple[str, ...], weights: PretrainedWeights) -> None:
    if given == stated:
        return
    shared = zip(given, stated, strict=False)
    place = next((place for place, (one, other) in enumerate(shared) if one != other), min(len(given), len(stated)))
    found, wanted = (
        f"{count(len(tokens), 'token')}, in place {place + 1} {tokens[place]!r}"
        if place < len(tokens)
        else count(len(tokens), "token")
        for tokens in (given, stated)
    )
    raise InvalidInput(
        f"vocabulary has {found}; {TOKENIZER_FILE} of {weights.source} has {wanted}; give no vocabulary, to use that",
        field="vocabulary",
        value=found,
        allowed=wanted,
    )


def read_classes(text: str) -> tuple[str, ...]:
    """Parse class names, or their number: see `read_names`."""
    return read_names("classes", text)


def read_names(field_: str, text: str) -> tuple[str, ...]:
    """Parse names such as `cat,dog,"bird, other"`, or a number N for names 0 to N-1."""
    if text.isdecimal():
        return tuple(str(index) for index in range(int(text)))
    try:
        cells = next(csv.reader([text], skipinitialspace=True, strict=True))
    except csv.Error as error:
        raise InvalidInput(field=field_, value=text, rest=f", in which quotes are wrong: {error}") from error
    names = tuple(name.strip() for name in cells)
    if not (names and all(names)):
        raise InvalidInput(
            field=field_,
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
