"""Details of results on a test set that suit a task, as tables and pictures; the threshold of an anomaly detection.

The samples themselves stay out of it: releases are sent to all devices.
Legend: N samples, T values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from moonfed.bundle.manifest import PADDING
from moonfed.bundle.target import UNKNOWN
from moonfed.control.held_out_score import ClassScore
from moonfed.data.data_set import DataSet
from moonfed.export.scoring import ClassCounts, Predictor
from moonfed.formatting import measured
from moonfed.release.pictures import Picture, against_true, bars, by_position, by_step, confusion, histogram
from moonfed.tasks.anomaly_detection import threshold
from moonfed.tasks.task import cross_entropy

BINS = 10  # of a table
_HIGHEST = 3.0  # times the threshold: where the last bin of scores begins at the latest

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultTable:
    """A table of results, with a sentence that introduces it."""

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class Details:
    """Facts of a test set besides metrics; none for targets without details."""

    def add(self, outputs: Array, targets: Array, inputs: Array) -> None:
        """Add a batch, as `Scorer.add` takes it."""

    def classes(self) -> tuple[ClassScore, ...]:
        """Return the results of each class or label."""
        return ()

    def table(self) -> ResultTable | None:
        """Return a table."""
        return None

    def pictures(self) -> tuple[Picture, ...]:
        """Return pictures."""
        return ()


def details_of(samples: DataSet, limit: float | None) -> Details:
    """Return empty details of samples; `limit`: see `result_table`."""
    if samples.target.kind == "next":
        return _TokenDetails(samples.inputs.shape[1])
    return _OutputDetails(samples, limit) if samples.target.kind in ("values", "none") else _ClassDetails(samples)


class _ClassDetails(Details):
    def __init__(self, samples: DataSet) -> None:
        self._target, self._counts = samples.target, ClassCounts(samples.target)

    def add(self, outputs: Array, targets: Array, inputs: Array) -> None:
        self._counts.add(outputs, targets, inputs)

    def classes(self) -> tuple[ClassScore, ...]:
        return self._counts.scores()

    def pictures(self) -> tuple[Picture, ...]:
        matrix, kind, scores = self._counts.matrix, self._target.kind, self.classes()
        drawn = list[Picture]()
        if kind == "mask":
            drawn.append(bars("IoU", "class", self._target.names, list(map(iou, scores))))
        elif matrix is None:
            values = [f1(each) if kind == "labels" or each.support else None for each in scores]
            drawn.append(bars("F1", "label" if kind == "labels" else "class", self._target.names, values))
        if matrix is not None:
            drawn.append(confusion(self._target.names, matrix, "pixels" if kind == "mask" else "samples"))
        return tuple(drawn)


class _OutputDetails(Details):
    def __init__(self, samples: DataSet, limit: float | None) -> None:
        self._samples, self._limit, self._parts = samples, limit, list[Array]()

    def add(self, outputs: Array, targets: Array, inputs: Array) -> None:
        self._parts.append(outputs)

    def table(self) -> ResultTable:
        return result_table(np.concatenate(self._parts), self._samples, self._limit)

    def pictures(self) -> tuple[Picture, ...]:
        outputs, targets = np.concatenate(self._parts).astype(np.float64), self._samples.known_targets()
        target = self._samples.target
        if target.kind == "none":
            return (histogram(score_groups(outputs, targets), self._limit),)
        steps = (by_step(outputs, targets, target),) if len(target.shape) > 1 and target.shape[0] > 1 else ()
        return against_true(outputs, targets, target), *steps


class _TokenDetails(Details):
    """Sums over the tokens at each place in a text."""

    def __init__(self, length: int) -> None:
        self._losses, self._tokens = np.zeros(length - 1), np.zeros(length - 1, np.int64)

    def add(self, outputs: Array, targets: Array, inputs: Array) -> None:
        following = inputs[:, 1:]
        known = following != PADDING
        right = np.take_along_axis(outputs[:, :-1], following[:, :, None], axis=2)[:, :, 0]
        self._losses += (cross_entropy(right) * known).sum(axis=0)
        self._tokens += known.sum(axis=0)

    def pictures(self) -> tuple[Picture, ...]:
        return (by_position(self._losses, self._tokens),)


def result_table(outputs: Array, samples: DataSet, limit: float | None = None) -> ResultTable:
    """Return values [N, …, T] against true ones, or a histogram of scores [N].

    `limit`: the score above which a sample is unusual; None: it has none.
    """
    outputs, targets = outputs.astype(np.float64), samples.known_targets()
    if samples.target.kind == "values":
        return _against_true(outputs, targets.astype(np.float64), samples)
    return _histogram(score_groups(outputs, targets), limit)


def score_groups(scores: Array, anomalous: Array) -> dict[str, Array]:
    """Return the scores [N] of usual and anomalous samples, or of all if none is known to be either."""
    known = anomalous.ndim == 1 and bool((anomalous != UNKNOWN).any())
    return {"usual": scores[anomalous == 0], "anomalous": scores[anomalous == 1]} if known else {"samples": scores}


def iou(entry: ClassScore) -> float | None:
    """Return what is correct, divided by what belongs to the class or is predicted as it."""
    if not entry.precision or not entry.recall:
        return None if entry.precision is None and entry.recall is None else 0.0
    return 1 / (1 / entry.precision + 1 / entry.recall - 1)


def f1(entry: ClassScore) -> float:
    """Return the harmonic mean of precision and recall; 0, as for macro F1, if the label neither occurs nor is told."""
    if not entry.precision or not entry.recall:
        return 0.0
    return 2 * entry.precision * entry.recall / (entry.precision + entry.recall)


def anomaly_threshold(graph: bytes, samples: DataSet) -> float:
    """Return the score above which a sample is unusual, with the six digits that a file's metadata have."""
    samples.require_samples()
    predictor = Predictor(graph)
    parts = [predictor.predict(samples.inputs[batch]) for batch in predictor.batches(len(samples))]
    return float(f"{threshold(np.concatenate(parts).astype(np.float64), samples.known_targets()):g}")


def _against_true(found: Array, true: Array, samples: DataSet) -> ResultTable:
    """Compare predicted and true values [N, …, T] in bins of about as many values each."""
    rows = [
        (name, *row)
        for place, name in enumerate(samples.target.names_with_units)
        for row in _bins_of(found[..., place].reshape(-1), true[..., place].reshape(-1))
    ]
    return ResultTable(
        caption="Predicted against true values, in the order of the true ones:",
        head=("value", "true from", "to", "number", "mean of true", "mean of predicted", "mean absolute error"),
        rows=tuple(rows),
    )


def _bins_of(found: Array, true: Array) -> list[tuple[str, ...]]:
    edges = np.unique(np.quantile(true, np.linspace(0, 1, BINS + 1)[1:-1]))
    places = np.searchsorted(edges, true, side="left")
    rows = []
    for place in np.unique(places):
        own = places == place
        figures = (true[own].mean(), found[own].mean(), np.abs(found[own] - true[own]).mean())
        ends = (measured(float(true[own].min())), measured(float(true[own].max())))
        rows.append((*ends, str(int(own.sum())), *(measured(float(figure)) for figure in figures)))
    return rows


def _histogram(groups: Mapping[str, Array], limit: float | None) -> ResultTable:
    """Count the samples of each group by score."""
    scores = np.concatenate(list(groups.values()))
    caption = "Scores:"
    if limit is not None:
        above = [f"{int((own > limit).sum())} of {len(own)} {name}" for name, own in groups.items() if len(own)]
        caption = f"Scores. Those above the threshold, {limit:g}, tell anomalies: {' and '.join(above)}."
    most = scores.max() if limit is None else min(scores.max(), max(_HIGHEST * limit, scores.min()))
    edges = np.linspace(scores.min(), most, BINS + 1)
    counts = {name: _counts(own, edges) for name, own in groups.items()}
    rows = [(measured(float(edges[place])), *(str(counts[name][place]) for name in groups)) for place in range(BINS)]
    return ResultTable(caption=caption, head=("score from", *groups), rows=tuple(rows))


def _counts(scores: Array, edges: Array) -> Sequence[int]:
    """Count by bin; the last one has all that is higher."""
    places = np.clip(np.searchsorted(edges, scores, side="right") - 1, 0, BINS - 1)
    return list(map(int, np.bincount(places, minlength=BINS)))
