"""Tables of results on a test set that suit a task, and the threshold of an anomaly detection.

The samples themselves stay out of it: releases are sent to all devices.
Legend: N samples, T values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from moonfed.bundle.target import UNKNOWN
from moonfed.data.data_set import DataSet
from moonfed.export.scoring import Predictor
from moonfed.formatting import measured
from moonfed.tasks.anomaly_detection import threshold

BINS = 10  # of a table
_HIGHEST = 3.0  # times the threshold: where the last bin of scores begins at the latest

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultTable:
    """A table of results, with a sentence that introduces it."""

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def result_table(outputs: Array, samples: DataSet, limit: float | None = None) -> ResultTable:
    """Return values [N, …, T] against true ones, or a histogram of scores [N].

    `limit`: the score above which a sample is unusual; None: it has none.
    """
    outputs, targets = outputs.astype(np.float64), samples.known_targets()
    if samples.target.kind == "values":
        return _against_true(outputs, targets.astype(np.float64), samples)
    return _histogram(outputs, targets, limit)


def anomaly_threshold(graph: bytes, samples: DataSet) -> float:
    """Return the score above which a sample is unusual, with the six digits that a file's metadata have."""
    samples.require_samples()
    predictor = Predictor(graph)
    parts = [predictor.predict(samples.inputs[batch]) for batch in predictor.batches(len(samples))]
    return float(f"{threshold(np.concatenate(parts).astype(np.float64), samples.known_targets()):g}")


def _against_true(found: Array, true: Array, samples: DataSet) -> ResultTable:
    """Compare predicted and true values [N, …, T] in bins of about as many values each."""
    names, units = samples.target.names, samples.target.units or ("",) * len(samples.target.names)
    rows = [
        (f"{name} ({unit})" if unit else name, *row)
        for place, (name, unit) in enumerate(zip(names, units, strict=True))
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


def _histogram(scores: Array, anomalous: Array, limit: float | None) -> ResultTable:
    """Count usual, anomalous and other samples by score."""
    known = anomalous.ndim == 1 and bool((anomalous != UNKNOWN).any())
    groups = {"usual": scores[anomalous == 0], "anomalous": scores[anomalous == 1]} if known else {"samples": scores}
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
