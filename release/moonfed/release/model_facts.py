"""What is known of a model that is released: from its file, from its run, and from data that it is tried on.

Legend: N samples, C classes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from moonfed.errors import InvalidInput
from moonfed.export.coordinator_client import CoordinatorClient
from moonfed.export.scoring import BATCH, Predictor, Score
from moonfed.manifest import InputSpec, Manifest
from moonfed.release.triton_config import GraphInterface
from moonfed.samples import RawSamples, has_labels, read_npz
from moonfed.v1 import control_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """One global model of the run, as the run knows it."""

    round: int  # 0: the weights that the run started from
    devices: tuple[str, ...]  # whose updates are in it
    accuracy: float | None  # an evaluator's, 0 to 1; None: nobody scored it
    loss: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingHistory:
    """How the model came to be."""

    manifest: Manifest
    curve: tuple[CurvePoint, ...]  # up to the model's round
    max_abs_diff: float  # between a probability of the graph and one of the plan


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassResult:
    """How good the model is at one class; None where there is nothing to divide by."""

    name: str
    precision: float | None  # of the samples that it takes for the class, how many are
    recall: float | None  # of the class' samples, how many it finds
    support: int  # the class' samples


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationResults:
    """How good the model is on some data."""

    samples: int
    data_sha256: str  # of the file
    score: Score
    classes: tuple[ClassResult, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """All of it."""

    name: str
    version: int
    sha256: str  # of model.onnx
    size: int  # bytes
    interface: GraphInterface
    metadata: Mapping[str, str]  # what the file says of itself
    history: TrainingHistory | None = None  # None: released from a file
    results: EvaluationResults | None = None  # None: no data were given

    @property
    def classes(self) -> tuple[str, ...]:
        """Class names, in the order of the probabilities; empty if the file has none."""
        return class_names(self.metadata)


def class_names(metadata: Mapping[str, str]) -> tuple[str, ...]:
    """The class names that a file's metadata hold; InvalidInput if they are damaged."""
    found = _parsed(metadata, "classes", [])
    if not (isinstance(found, list) and all(isinstance(name, str) for name in found)):
        raise InvalidInput(f"classes in the model's metadata are {found!r}; they must be a list of names")
    return tuple(found)


def input_spec(metadata: Mapping[str, str], where: str) -> InputSpec:
    """One raw sample of the model, as its metadata have it; InvalidInput for a file that is not moonfed's."""
    found = _parsed(metadata, "input", {})
    try:
        return InputSpec(kind=found["kind"], shape=tuple(found["shape"]))
    except (KeyError, TypeError) as error:
        raise InvalidInput(f"{where} does not say what it takes; `moonfed-export onnx` writes files that do") from error


def read_curve(runs: CoordinatorClient, run: control_pb2.Run, last: int) -> tuple[CurvePoint, ...]:
    """The run's committed rounds up to `last`, and the weights that it started from."""
    committed = [
        entry
        for entry in runs.rounds(run.run)
        if entry.status == control_pb2.ROUND_STATUS_COMMITTED and entry.round <= last
    ]
    return (
        _point(0, (), run.initial_metrics),
        *(_point(entry.round, tuple(sorted(entry.counted)), entry.metrics) for entry in committed),
    )


def evaluate_on(graph: bytes, metadata: Mapping[str, str], data: Path) -> EvaluationResults | None:
    """The model's results on an .npz of inputs and labels; None if it has no labels."""
    if not has_labels(data):
        return None
    classes = class_names(metadata)
    samples = read_npz(data, input_spec(metadata, "the model"), classes)
    if len(samples) == 0:
        raise InvalidInput(f"{data} holds no samples; at least one is needed")
    predictor = Predictor(graph)
    return EvaluationResults(
        samples=len(samples),
        data_sha256=hashlib.sha256(data.read_bytes()).hexdigest(),
        score=predictor.score(samples.inputs, samples.labels),
        classes=_by_class(predictor, samples, classes),
    )


def _parsed(metadata: Mapping[str, str], key: str, default: object) -> Any:  # noqa: ANN401 - as JSON has it
    try:
        return json.loads(metadata[key]) if key in metadata else default
    except ValueError as error:
        raise InvalidInput(f"{key!r} in the model's metadata is not JSON") from error


def _by_class(predictor: Predictor, samples: RawSamples, classes: Sequence[str]) -> tuple[ClassResult, ...]:
    starts = range(0, len(samples), BATCH)
    answers_N = np.concatenate([predictor.predict(samples.inputs[i : i + BATCH]).argmax(axis=1) for i in starts])  # noqa: N806
    found_C = np.bincount(answers_N, minlength=len(classes))  # noqa: N806
    there_C = np.bincount(samples.labels, minlength=len(classes))  # noqa: N806
    right_C = np.bincount(samples.labels[answers_N == samples.labels], minlength=len(classes))  # noqa: N806
    return tuple(
        ClassResult(
            name=name,
            precision=float(right_C[i] / found_C[i]) if found_C[i] else None,
            recall=float(right_C[i] / there_C[i]) if there_C[i] else None,
            support=int(there_C[i]),
        )
        for i, name in enumerate(classes)
    )


def _point(number: int, devices: tuple[str, ...], metrics: Mapping[str, float]) -> CurvePoint:
    return CurvePoint(round=number, devices=devices, accuracy=metrics.get("accuracy"), loss=metrics.get("loss"))
