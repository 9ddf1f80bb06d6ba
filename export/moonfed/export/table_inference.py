"""Inference of a table's description from an example: kinds of columns, categories, classes and scales.

A column is numeric if most of its cells are numbers; its other cells are then reported as errors. A column of other
text is categorical. Where that is doubtful, the user is asked or told, unless an option has named the column.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from moonfed.bundle.manifest import CLASSIFICATION
from moonfed.bundle.target import NO_TARGET, TargetSpec, class_target
from moonfed.data.bad_cells import UnusableTable
from moonfed.data.formats import TABLES, kind_of
from moonfed.data.source import report
from moonfed.data.spelling import NUMBER, canonical, composed
from moonfed.data.table import TableRows, require_columns, require_table
from moonfed.data.table_cells import as_text, count_values, parse_numbers
from moonfed.data.table_reader import Batch, read_batches, read_header
from moonfed.data.table_spec import Column, TableSpec
from moonfed.errors import InvalidInput
from moonfed.export.column_doubts import (
    NumbersSeen,
    numeric_notes,
    numeric_question,
    several_question,
    target_question,
    text_notes,
    text_question,
)
from moonfed.export.table_description import Scale, TableDescription, rounded_scale
from moonfed.tasks import TASKS

MAX_CATEGORIES = 256  # of a column; each becomes a feature
MAX_CLASSES = 1000
REGRESSION = "regression"
OF_TABLES = ("class", "labels", "values", "none")  # kinds of targets
_VALUE = "value of "  # before a target, which may also be a column
_REMEDY = "give `moonfed-export columns` --numeric, --categorical or --ignore with its name"


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnChoices:
    """A user's choices about columns."""

    targets: Sequence[str]
    ignored: Sequence[str] = ()
    categorical: Sequence[str] = ()  # although they hold numbers
    numeric: Sequence[str] = ()  # although they hold other text, or count rows
    task: str = CLASSIFICATION.name
    window: int = 0  # rows of a sample; 0: each row is one
    horizon: int = 0  # later rows whose targets are predicted; 0: those of the sample itself
    group: str = ""  # the column that tells series apart
    ask: bool = True  # whether a doubtful column is an error; otherwise it is reported

    def __post_init__(self) -> None:
        targets = () if self.task == REGRESSION else self.targets
        if both := {*self.categorical, *targets} & set(self.numeric):
            raise InvalidInput(field="numeric", value=min(both), allowed="no target, and not categorical as well")
        kind = TASKS.select(self.task).target
        if kind not in OF_TABLES:
            known = ", ".join(name for name in TASKS if TASKS[name].target in OF_TABLES)
            rest = f", whose samples are no rows of tables; it must be one of {known}"
            raise InvalidInput(field="task", value=self.task, rest=rest)
        if self.horizon and (kind != "values" or not self.window):
            rest = "; it must not be given without --window and --task regression"
            raise InvalidInput(field="horizon", value=self.horizon, rest=rest)
        if self.group and not self.window:
            raise InvalidInput(field="group", value=self.group, rest="; it must not be given without --window")
        self._require_targets(kind)

    def _require_targets(self, kind: str) -> None:
        several = " and ".join(map(repr, self.targets))
        if kind == "class" and len(self.targets) > 1:
            raise InvalidInput(
                f"target is {several}; it must be one column, since a model predicts one class for each row; leave the "
                "others out with --ignore, or give --task multilabel for columns of 0 and 1, or --task regression for "
                "numbers",
                field="target",
            )
        if kind == "none" and len(self.targets) > 1:
            raise InvalidInput(f"target is {several}; it must be one column of 0 and 1, or none", field="target")

    def composed(self) -> ColumnChoices:
        """Return the choices with the names in the form of a header."""
        return replace(
            self,
            targets=[composed(name) for name in self.targets],
            group=composed(self.group),
            ignored=[composed(name) for name in self.ignored],
            categorical=[composed(name) for name in self.categorical],
            numeric=[composed(name) for name in self.numeric],
        )


def infer_description(path: Path, choices: ColumnChoices) -> TableDescription:
    """Describe a table by its content.

    Raises InvalidInput for a column that cannot be used, and UnusableTable for bad cells, by row and column.
    """
    require_table("data", path)
    if kind_of(str(path)) not in TABLES:
        raise InvalidInput(field="data", value=path, allowed="a .csv or .parquet file")
    header = read_header(path)
    choices = choices.composed()
    kind = TASKS[choices.task].target
    if kind != "none" and not all(choices.targets or [""]):
        raise InvalidInput(f"target is missing; it must be one of the columns, {', '.join(header)}", field="target")
    named = [*choices.targets, *choices.ignored, *choices.categorical, *choices.numeric, *filter(None, [choices.group])]
    require_columns(path, header, named)
    others = () if choices.horizon else choices.targets  # a forecast takes the values so far
    left_out = {*others, *choices.ignored, *filter(None, [choices.group])}
    features = [name for name in header if name not in left_out]
    _require_named(path, features)
    seen = _look_at(path, features, choices)
    if not any(column.numbers.count or column.texts for column in seen.values()):
        raise InvalidInput(f"{path} has no rows; at least one is needed")
    table = TableSpec(
        columns=tuple(_column(path, name, seen[name], choices) for name in features),
        targets=tuple(choices.targets),
        group=choices.group,
    )
    target = _target(path, seen, choices)
    scales = _scales(path, table, target)
    if kind == "values":
        found = [scales.pop(_VALUE + name) for name in choices.targets]
        means, deviations = ([scale.mean for scale in found], [scale.deviation for scale in found])
        target = replace(target, mean=tuple(means), deviation=tuple(deviations))
    return TableDescription(table=table, target=target, scales=scales, window=choices.window)


def _target(path: Path, seen: Mapping[str, _Seen], choices: ColumnChoices) -> TargetSpec:
    kind, names = TASKS[choices.task].target, tuple(choices.targets)
    if kind == "labels":
        return TargetSpec(kind="labels", names=names, shape=(len(names),))
    if kind == "values":
        if texts := [name for name in names if name in seen and not seen[name].numeric]:
            raise InvalidInput(field="target", value=texts[0], allowed="a column of numbers, which a forecast predicts")
        shape = (choices.horizon, len(names)) if choices.horizon else (len(names),)
        return TargetSpec(kind="values", names=names, shape=shape)
    if kind == "none":
        return NO_TARGET
    classes = _classes(path, names[0], seen[names[0]], choices)
    if len(classes) < 2:
        found = ", ".join(map(repr, classes)) or "no value"
        raise InvalidInput(
            field="target", value=names[0], rest=f", which has only {found}; it must have at least two classes"
        )
    return class_target(classes)


@dataclass(slots=True)
class _Seen:
    """The cells of a column so far."""

    limit: int  # of distinct texts
    kind: str  # that the user has chosen: "categorical", "numeric" or ""
    texts: int = 0
    numbers: NumbersSeen = field(default_factory=NumbersSeen)
    spellings: dict[str, str] = field(default_factory=dict)  # the first spelling of each name

    def add(self, batch: Batch, name: str, place: str) -> None:
        """Count the cells of a batch."""
        cells, found = batch.columns[name], 0
        if self.kind != "categorical":
            numbers = parse_numbers(cells, place)
            found = int(np.isfinite(numbers).sum())
            self.numbers.add(numbers)
        if found < len(batch):
            self.texts += count_values(cells, place, categorical=self.kind == "categorical") - found
        if len(self.spellings) <= self.limit:
            for text in as_text(cells, place).unique().to_pylist():
                if text:
                    self.spellings.setdefault(canonical(text), text)

    @property
    def numeric(self) -> bool:
        """True if most of the cells are numbers, or the user says that they should be."""
        return self.kind == "numeric" or (self.kind == "" and self.numbers.count > self.texts)

    @property
    def names(self) -> tuple[str, ...]:
        """The different texts in order."""
        return tuple(sorted(self.spellings.values(), key=_order))


def _look_at(path: Path, features: Sequence[str], choices: ColumnChoices) -> dict[str, _Seen]:
    kinds = dict.fromkeys(choices.categorical, "categorical") | dict.fromkeys(choices.numeric, "numeric")
    seen = {name: _Seen(MAX_CATEGORIES, kinds.get(name, "")) for name in features}
    if TASKS[choices.task].target == "class":
        seen[choices.targets[0]] = _Seen(MAX_CLASSES, "categorical")
    notes = list[str]()
    for batch in read_batches(path, list(seen), notes):
        for name, found in seen.items():
            found.add(batch, name, f"{path}, column {name}")
    report(notes)
    return seen


def _column(path: Path, name: str, seen: _Seen, choices: ColumnChoices) -> Column:
    if not (seen.numbers.count or seen.texts):
        raise InvalidInput(f"{path}, column {name} is empty; leave it out with --ignore")
    if seen.numeric:
        question, notes = numeric_question(name, seen.numbers), numeric_notes(seen.numbers)
    else:
        if len(seen.spellings) > MAX_CATEGORIES:
            advice = "it must be numeric, or name categories, or be left out with --ignore"
            raise _too_many(path, name, seen, MAX_CATEGORIES, advice)
        question, notes = text_question(len(seen.spellings), seen.texts), text_notes(seen.names, seen.texts)
    if not seen.kind:
        if question and choices.ask:
            raise InvalidInput(f"{path}, column {name} {question}; {_REMEDY}")
        report([f"{path}, column {name} {note}; {_REMEDY}" for note in ([question] if question else notes)])
    return Column(name=name, categories=() if seen.numeric else seen.names)


def _classes(path: Path, target: str, seen: _Seen, choices: ColumnChoices) -> tuple[str, ...]:
    several = several_question(set(seen.spellings.values()))
    if several and target not in choices.categorical:
        raise InvalidInput(
            f"{path}, column {target}, the target, {several}; a model predicts one class for each row: choose another "
            f"target, or confirm these classes with --categorical {target}"
        )
    question = target_question(set(seen.spellings.values()), seen.texts)
    if question and target not in choices.categorical:
        raise InvalidInput(
            f"{path}, column {target}, the target, {question}; classification predicts one of several classes: give "
            f"--task regression to predict the number, or confirm these classes with --categorical {target}",
            field="target",
            value=target,
        )
    if len(seen.spellings) > MAX_CLASSES:
        raise _too_many(path, target, seen, MAX_CLASSES, f"a target must name at most {MAX_CLASSES} classes")
    return seen.names


def _too_many(path: Path, column: str, seen: _Seen, limit: int, advice: str) -> UnusableTable:
    fault = f"{path}, column {column} has more than {limit} different values"
    return UnusableTable(f"{fault}, such as {min(seen.spellings.values())!r}; {advice}", fault)


def _order(name: str) -> tuple[float, str]:
    """Sort numbers by value, before other names."""
    return (float(name), name) if NUMBER.fullmatch(name) else (math.inf, name)


def _scales(path: Path, table: TableSpec, target: TargetSpec) -> dict[str, Scale]:
    """Return the scales of numeric columns and of values, of all rows; every cell is checked."""
    values = table.targets if target.kind == "values" else ()
    width = table.width + len(values)
    count, mean = 0, np.zeros(width)
    squares: npt.NDArray[np.float64] = np.zeros(width)  # sum of squared differences from the mean
    for rows in TableRows(path, table, table.targets, target).read():
        parts = [rows.features, *([rows.targets] if values and rows.targets is not None else [])]
        numbers = np.concatenate(parts, axis=1).astype(np.float64)
        difference = numbers.mean(axis=0) - mean
        total = count + len(numbers)
        squares += ((numbers - numbers.mean(axis=0)) ** 2).sum(axis=0)
        squares += difference**2 * count * len(numbers) / total
        mean, count = mean + difference * len(numbers) / total, total
    deviation = np.sqrt(squares / count)
    starts = np.cumsum([0, *(column.width for column in table.columns)]).tolist()
    places = {column.name: at for column, at in zip(table.columns, starts, strict=False) if not column.categories}
    places |= {_VALUE + name: table.width + place for place, name in enumerate(values)}
    return {name: rounded_scale(float(mean[at]), float(deviation[at])) for name, at in places.items()}


def _require_named(path: Path, names: Sequence[str]) -> None:
    if not names:
        raise InvalidInput(f"{path} has no column besides the target; at least one is needed", field="columns", value=0)
    if not all(names):
        raise InvalidInput(f"{path} has a column without a name; name it in the header, or remove it")
