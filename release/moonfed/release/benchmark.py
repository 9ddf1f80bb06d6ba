"""Measurements of graphs on the CPU: score, difference from another graph, time of a pass and of loading."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping

import numpy as np

from moonfed.data.data_set import DataSet, Inputs
from moonfed.export.scoring import Predictor
from moonfed.release.variant_gate import LOADING, Measurements

BATCHES = (1, 32)  # samples in a timed pass
_TURNS = (5, 60)  # minimum and maximum per graph
_ENOUGH = 2.0  # seconds for the turns of all graphs, once each has the minimum


def measure(graphs: Mapping[str, bytes], data: DataSet, task: str) -> dict[str, Measurements]:
    """Measure each graph; timings alternate between graphs, so that a busy moment affects all of them."""
    predictors = {name: Predictor(graph) for name, graph in graphs.items()}
    milliseconds: dict[str, dict[str, float]] = {name: {} for name in graphs}
    for batch in BATCHES:
        inputs = np.resize(data.inputs, (batch, *data.inputs.shape[1:]))
        calls = {name: _Inference(predictor, inputs) for name, predictor in predictors.items()}
        for name, median in _medians(calls).items():
            milliseconds[name][f"batch {batch}"] = median
    for name, median in _medians({name: _Loading(graph) for name, graph in graphs.items()}).items():
        milliseconds[name][LOADING] = median
    return {
        name: Measurements(
            bytes=len(graph),
            score=predictors[name].score(data, task),
            milliseconds=milliseconds[name],
        )
        for name, graph in graphs.items()
    }


def largest_difference(graph: bytes, reference: bytes, inputs: Inputs) -> float:
    """Return the largest absolute difference between two graphs' outputs over all inputs."""
    first, second = Predictor(graph), Predictor(reference)
    parts = (inputs[batch] for batch in first.batches(len(inputs)))
    return float(np.max([np.abs(first.predict(part) - second.predict(part)).max() for part in parts]))


def _medians(calls: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """Return each call's median milliseconds, after one call that is not counted."""
    timings: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    end = time.perf_counter() + _ENOUGH
    for turn in range(_TURNS[1]):
        if turn >= _TURNS[0] and time.perf_counter() > end:
            break
        for name, call in calls.items():
            started = time.perf_counter()
            call()
            timings[name].append(1000 * (time.perf_counter() - started))
    return {name: statistics.median(values) for name, values in timings.items()}


class _Inference:
    """A timed call: one pass."""

    def __init__(self, predictor: Predictor, inputs: Inputs) -> None:
        self._predictor, self._inputs = predictor, inputs

    def __call__(self) -> object:
        return self._predictor.predict(self._inputs)


class _Loading:
    """A timed call: loading a graph."""

    def __init__(self, graph: bytes) -> None:
        self._graph = graph

    def __call__(self) -> object:
        return Predictor(self._graph)
