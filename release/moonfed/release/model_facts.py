"""The facts about a released model: from its file, from its run, and from evaluation data.

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
    """A global model of the run on its learning curve."""

    round: int  # 0: the run's initial weights
    devices: tuple[str, ...]  # whose updates were aggregated
    accuracy: float | None  # from an evaluator, 0 to 1; None: never scored
    loss: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingHistory:
    """The training history of the model."""

    manifest: Manifest
    curve: tuple[CurvePoint, ...]  # up to the model's round
    max_abs_diff: float  # between a probability of the graph and one of the plan


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassResult:
    """The results for one class; None where the denominator is 0."""

    name: str
    precision: float | None  # of the samples predicted as the class, the share that belongs to it
    recall: float | None  # of the class's samples, the share that is found
    support: int  # number of the class's samples


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationResults:
    """The results of the model on some data."""

    samples: int
    data_sha256: str  # of the file
    score: Score
    classes: tuple[ClassResult, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """All known facts about the model."""

    name: str
    version: int
    sha256: str  # of model.onnx
    size: int  # bytes
    interface: GraphInterface
    metadata: Mapping[str, str]  # the file's own
    history: TrainingHistory | None = None  # None: released from a file
    results: EvaluationResults | None = None  # None: not evaluated

    @property
    def classes(self) -> tuple[str, ...]:
        """The class names in the order of the probabilities; empty if the file has none."""
        return class_names(self.metadata)


def class_names(metadata: Mapping[str, str]) -> tuple[str, ...]:
    """Read the class names from a file's metadata; raise InvalidInput if they are damaged."""
    found = _parsed(metadata, "classes", [])
    if not (isinstance(found, list) and all(isinstance(name, str) for name in found)):
        raise InvalidInput(f"classes in the model's metadata are {found!r}; they must be a list of names")
    return tuple(found)


def input_spec(metadata: Mapping[str, str], where: str) -> InputSpec:
    """Read the kind and shape of a raw sample from metadata; raise InvalidInput for a file that is not moonfed's."""
    found = _parsed(metadata, "input", {})
    try:
        return InputSpec(kind=found["kind"], shape=tuple(found["shape"]))
    except (KeyError, TypeError) as error:
        raise InvalidInput(f"{where} does not describe its input; files written by `moonfed-export onnx` do") from error


def read_curve(runs: CoordinatorClient, run: control_pb2.Run, last: int) -> tuple[CurvePoint, ...]:
    """Read the run's learning curve: the initial weights and the committed rounds up to `last`."""
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
    """Evaluate the model on an .npz of inputs and labels; return None if it has no labels."""
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


def _parsed(metadata: Mapping[str, str], key: str, default: object) -> Any:  # noqa: ANN401 - any JSON value
    try:
        return json.loads(metadata[key]) if key in metadata else default
    except ValueError as error:
        raise InvalidInput(f"{key!r} in the model's metadata is not JSON") from error


def _by_class(predictor: Predictor, samples: RawSamples, classes: Sequence[str]) -> tuple[ClassResult, ...]:
    starts = range(0, len(samples), BATCH)
    predicted_N = np.concatenate([predictor.predict(samples.inputs[i : i + BATCH]).argmax(axis=1) for i in starts])  # noqa: N806
    predicted_C = np.bincount(predicted_N, minlength=len(classes))  # noqa: N806
    present_C = np.bincount(samples.labels, minlength=len(classes))  # noqa: N806
    correct_C = np.bincount(samples.labels[predicted_N == samples.labels], minlength=len(classes))  # noqa: N806
    return tuple(
        ClassResult(
            name=name,
            precision=float(correct_C[i] / predicted_C[i]) if predicted_C[i] else None,
            recall=float(correct_C[i] / present_C[i]) if present_C[i] else None,
            support=int(present_C[i]),
        )
        for i, name in enumerate(classes)
    )


def _point(number: int, devices: tuple[str, ...], metrics: Mapping[str, float]) -> CurvePoint:
    return CurvePoint(round=number, devices=devices, accuracy=metrics.get("accuracy"), loss=metrics.get("loss"))
