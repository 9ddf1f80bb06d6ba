"""Comparison of finished simulations: the keys in which their recipes differ, a table, and a picture."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from moonfed.bundle.manifest import Metric
from moonfed.coordinator.cli import layout
from moonfed.errors import Corrupt, InvalidInput, NotFound
from moonfed.experiments.fleet.layout import Layout
from moonfed.experiments.fleet.results import read_metric, read_rows

MOST = 200  # simulations of a sweep
LONGEST = 255  # bytes of a directory's name
_FORBIDDEN = str.maketrans("/\\", "__")  # in names of directories


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A finished simulation, by its summary; of parties alone, which have no rounds, the scores are theirs."""

    label: str  # the keys in which its recipe differs from the others' or its directory's name
    recipe: Mapping[str, Any]  # flat: tables' keys follow a dot
    metric: Metric
    scores: Sequence[float]
    rounds: int
    last: float  # score of the last round; of parties alone, the mean
    best: float
    megabytes: float  # sent to and received from all parties
    seconds: float

    def to_document(self) -> dict[str, Any]:
        """Return the outcome as JSON values."""
        return {
            "label": self.label,
            self.metric.name: self.last,
            f"best_{self.metric.name}": self.best,
            "rounds": self.rounds,
            "megabytes": round(self.megabytes, 3),
            "seconds": self.seconds,
            "recipe": dict(self.recipe),
        }


def grid(sweeps: Sequence[str]) -> list[tuple[str, ...]]:
    """Return every combination of `KEY=A,B,C` as `KEY=VALUE` changes; InvalidInput if there is nothing to combine."""
    choices = []
    for sweep in sweeps:
        key, separator, texts = sweep.partition("=")
        values = [text.strip() for text in texts.split(",")]
        if not separator or not key.strip() or not all(values) or len(set(values)) < len(values):
            raise InvalidInput(field="sweep", value=sweep, allowed="KEY=A,B,C with values that differ, such as mu=1,5")
        choices.append([f"{key.strip()}={value}" for value in values])
    if len({choice[0].partition("=")[0] for choice in choices}) < len(choices):
        raise InvalidInput(field="sweep", value=", ".join(sweeps), rest="; each key must be given once")
    found = list(itertools.product(*choices))
    if len(found) > MOST:
        raise InvalidInput(
            field="sweep", value=", ".join(sweeps), rest=f"; that is {len(found):,} simulations, at most {MOST}"
        )
    names = {directory_of(combination) for combination in found}
    if len(names) < len(found) or max(len(name.encode()) for name in names) > LONGEST:
        problem = f"; its directories' names would be alike, or longer than {LONGEST} bytes"
        raise InvalidInput(field="sweep", value=", ".join(sweeps), rest=problem)
    return found


def directory_of(combination: Sequence[str]) -> str:
    """Return the name of a combination's directory."""
    return ",".join(combination).translate(_FORBIDDEN)


def read_outcomes(directories: Sequence[Path]) -> list[Outcome]:
    """Read finished simulations, in that order; NotFound names a directory without one."""
    found = []
    for directory in directories:
        files = Layout(directory)
        if not files.summary.is_file():
            problem = ", which has no finished simulation; `simulate` resumes one"
            raise NotFound(field="directory", value=str(directory), rest=problem)
        rounds, parties = read_rows(files)
        if not (rounds or parties):
            raise Corrupt(f"{files.results} has no results; simulate again into a new directory")
        try:
            summary = json.loads(files.summary.read_text())
            metric = read_metric(summary)
            outcome = Outcome(
                label=directory.name,
                recipe=_flat(summary["recipe"]),
                metric=metric,
                scores=[entry.score for entry in rounds or parties],
                rounds=len(rounds),
                last=summary[metric.name],
                best=summary.get(f"best_{metric.name}", summary[metric.name]),
                megabytes=(summary.get("sent_bytes", 0) + summary.get("received_bytes", 0)) / 1e6,
                seconds=summary["seconds"],
            )
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise Corrupt(f"{files.summary} is not the summary of a simulation") from error
        found.append(outcome)
    _require_one_metric(found)
    return _labelled(found)


def _require_one_metric(outcomes: Sequence[Outcome]) -> None:
    names = {outcome.metric.name: outcome.label for outcome in reversed(outcomes)}
    if len(names) > 1:
        (one, where), (other, there) = list(names.items())[:2]
        raise InvalidInput(
            f"{where} is scored by {one} and {there} by {other}; simulations of one task can be compared",
            field="metric",
            value=other,
        )


def _flat(recipe: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in recipe.items():
        flat |= {f"{key}.{name}": one for name, one in value.items()} if isinstance(value, Mapping) else {key: value}
    return flat


def _labelled(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Name each outcome by the keys in which the recipes differ, unless that leaves two alike."""
    keys = sorted({key for outcome in outcomes for key in outcome.recipe} - {"name"})
    differing = [key for key in keys if len({json.dumps(outcome.recipe.get(key)) for outcome in outcomes}) > 1]
    labels = [", ".join(_pair(key, outcome) for key in differing if key in outcome.recipe) for outcome in outcomes]
    if not differing or len(set(labels)) < len(labels):
        return list(outcomes)
    return [replace(outcome, label=label or outcome.label) for outcome, label in zip(outcomes, labels, strict=True)]


def _pair(key: str, outcome: Outcome) -> str:
    value = outcome.recipe[key]
    return f"{key.rpartition('.')[2]}={f'{value:g}' if isinstance(value, float) else value}"


def table(outcomes: Sequence[Outcome]) -> str:
    """Format the outcomes, the best first."""
    metric = outcomes[0].metric
    heads = ["", metric.label, "best", "rounds", "MB", "seconds"]
    rows = [
        [
            outcome.label,
            f"{outcome.last:.4f}",
            f"{outcome.best:.4f}",
            f"{outcome.rounds or '-'}",
            f"{outcome.megabytes:.1f}",
            f"{outcome.seconds:.0f}",
        ]
        for outcome in sorted(outcomes, key=lambda one: one.last, reverse=metric.maximise)
    ]
    return "\n".join(layout.table(heads, rows, None))


def draw(outcomes: Sequence[Outcome], path: Path) -> None:
    """Write a picture of the score by round, a line for each outcome; of parties alone, their mean as a level."""
    from moonfed.experiments.plots import Line, draw_lines, picture

    longest = max((outcome.rounds for outcome in outcomes), default=0) or 1
    with picture(path, 1, 1, width=8.0, height=4.5, title=f"{len(outcomes)} simulations") as axes:
        lines = [
            Line(label=outcome.label, x=list(range(1, outcome.rounds + 1)), y=list(outcome.scores))
            if outcome.rounds
            else Line(label=outcome.label, x=[1, longest], y=[outcome.last, outcome.last])
            for outcome in outcomes
        ]
        draw_lines(axes[0], lines, x="round", y=f"{outcomes[0].metric.label} on the test set")
