"""Outputs of bound ONNX graphs on arrays, and how good they are. Needs no torch.

Legend: N samples, B a batch of them, C classes or labels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime

from moonfed.bundle.manifest import ACCURACY, CLASSIFICATION, Manifest, Metric
from moonfed.bundle.target import LIKELY, OUTPUTS, UNKNOWN, TargetSpec
from moonfed.control.held_out_score import MAX_CONFUSION, ClassScore, HeldOutScore, class_scores
from moonfed.data.data_set import DataSet, Inputs
from moonfed.errors import InvalidInput
from moonfed.models.onnx_runtime import ONNX_FORMAT
from moonfed.plan.inspection.graph import require_self_contained
from moonfed.tasks import TASKS
from moonfed.tasks.added_metric import AddedMetric, compute_added
from moonfed.tasks.figure import drop
from moonfed.tasks.task import Array, Scorer

BATCH = 256  # samples at once
_BATCH_VALUES = 1 << 24  # outputs at once
CALIBRATION_BINS = 15  # of equal width, as in Guo et al., On Calibration of Modern Neural Networks (2017)
_ERRORS_ONLY = 3
Observer = Callable[[Array, Array, Array], object]  # of the outputs, targets and raw inputs [B, …] of a batch


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """A model's metrics on some data."""

    metrics: Mapping[str, float]  # all of the task's
    metric: Metric = ACCURACY  # by which models are compared

    @property
    def value(self) -> float:
        """The value of the metric."""
        return self.metrics[self.metric.name]

    def drop_from(self, reference: Score) -> float:
        """Return how much worse it is than a reference: see `moonfed.tasks.figure.drop`."""
        return drop(self.value, reference.value, maximise=self.metric.maximise, share=self.metric.share)


def open_session(graph: bytes) -> onnxruntime.InferenceSession:
    """Open an ONNX Runtime session on the CPU that logs only errors; InvalidInput if the graph names other files."""
    require_self_contained(graph)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = _ERRORS_ONLY
    options.add_session_config_entry(*ONNX_FORMAT)
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutData:
    """A test set."""

    name: str
    sha256: str  # of the data
    samples: DataSet


class Predictor:
    """A bound graph that predicts on the CPU, so that results do not depend on a machine's accelerator."""

    _values = 1  # of a sample's output

    def __init__(self, graph: bytes) -> None:
        self._session = open_session(graph)
        found = next(node for node in self._session.get_outputs() if node.name in OUTPUTS)
        self._output = found.name
        self._values = math.prod(side for side in found.shape[1:] if isinstance(side, int))

    def batches(self, samples: int) -> Iterator[slice]:
        """Yield the places of that many samples in batches, whose outputs fit in memory."""
        size = max(1, min(BATCH, _BATCH_VALUES // self._values))
        for start in range(0, samples, size):
            yield slice(start, start + size)

    def predict(self, inputs: Inputs) -> npt.NDArray[np.float32]:
        """Compute probabilities, values or scores [N, …] of raw samples [N, …] in one pass."""
        (outputs,) = self._session.run([self._output], {"inputs": inputs})
        return np.asarray(outputs, dtype=np.float32)

    def score(self, samples: DataSet, task: str = CLASSIFICATION.name, observe: Observer | None = None) -> Score:
        """Compute a task's metrics over all samples, batch by batch; InvalidInput if no target is known.

        `observe` gets the outputs, targets and inputs of each batch.
        """
        kind = TASKS.select(task)
        metrics = self._metrics(kind().scorer(samples.target), samples, kind.metric, observe)
        return Score(metrics=metrics, metric=replace(kind.metric, unit=samples.target.unit))

    def held_out_score(self, data: HeldOutData, manifest: Manifest, added: Sequence[AddedMetric] = ()) -> HeldOutScore:
        """Compute all that is recorded of a model's outputs on a test set, batch by batch.

        `added`: metrics of packages, which need all outputs at once. Raises InvalidInput if no target of the data is
        known, if a metric of a package has the name of one of the task's, and if it fails.
        """
        target, outputs = manifest.target, list[Array]()
        scorer = TASKS.build(manifest.task).scorer(target)
        counts = ClassCounts(target) if target.kind in ("class", "mask") else None

        def observe(found: Array, targets: Array, inputs: Array) -> None:
            if counts:
                counts.add(found, targets, inputs)
            if added:
                outputs.append(found)

        metrics = self._metrics(scorer, data.samples, manifest.metric, observe)
        if taken := [metric.name for metric in added if metric.name in metrics]:
            rest = f", which is the name of one of task {manifest.task.name!r}; rename it in its package"
            raise InvalidInput(field="metric", value=taken[0], rest=rest)
        return HeldOutScore(
            test_set=data.name,
            sha256=data.sha256,
            samples=len(data.samples),
            metric=manifest.metric,
            metrics={**metrics, **compute_added(added, outputs, data.samples.known_targets(), target)},
            **(counts.fields() if counts else {}),
        )

    def _metrics(
        self, scorer: Scorer, samples: DataSet, metric: Metric, observe: Observer | None
    ) -> Mapping[str, float]:
        targets = samples.known_targets()
        for batch in self.batches(len(samples)):
            outputs = self.predict(samples.inputs[batch])
            scorer.add(outputs, targets[batch], samples.inputs[batch])
            if observe:
                observe(outputs, targets[batch], samples.inputs[batch])
        found = scorer.metrics()
        if metric.name not in found:
            noun = samples.target.noun
            raise InvalidInput(f"{samples.origin} has no known {noun}, which are needed", field=noun)
        return found


class ClassCounts:
    """Samples, or pixels, by class or label and by prediction; of classes, also by the prediction's confidence."""

    def __init__(self, target: TargetSpec) -> None:
        classes = len(target.names)
        self._target, self._classes, self._matrix = target, classes, classes <= MAX_CONFUSION
        self._support, self._predicted, self._correct = (np.zeros(classes, np.int64) for _ in range(3))
        self._confusion = np.zeros(classes**2 if self._matrix else 0, np.int64)
        self._bins = np.zeros((3, CALIBRATION_BINS))

    def add(self, outputs: Array, targets: Array, inputs: Array) -> None:
        """Add probabilities [B, C, …] and classes [B, …], or labels [B, C]."""
        if self._target.kind == "labels":
            applies, found = targets == 1, (outputs >= LIKELY) & (targets != UNKNOWN)
            self._support += applies.sum(axis=0)
            self._predicted += found.sum(axis=0)
            self._correct += (applies & found).sum(axis=0)
            return
        known = slice(None) if targets.dtype == np.int64 else targets != UNKNOWN
        true = targets[known].astype(np.int64)
        predicted = outputs.argmax(axis=1)[known]
        self._support += _counted(true, self._classes)
        self._predicted += _counted(predicted, self._classes)
        self._correct += _counted(true[predicted == true], self._classes)
        if self._matrix:
            self._confusion += _counted(true * self._classes + predicted, self._classes**2)
        self._bins += _by_confidence(outputs.max(axis=1)[known], predicted == true)

    @property
    def matrix(self) -> Array | None:
        """The confusion matrix [C, C], by class and by prediction; None of labels and of too many classes."""
        known = self._matrix and self._target.kind != "labels"
        return self._confusion.reshape(self._classes, self._classes) if known else None

    def scores(self) -> tuple[ClassScore, ...]:
        """Return precision and recall of each class or label."""
        counts = (self._support, self._predicted, self._correct)
        return class_scores(self._target.names, *(each.tolist() for each in counts))

    def fields(self) -> dict[str, Any]:
        """Return the fields of a score. Pixels of one image depend on each other, so they have no calibration error."""
        found: dict[str, Any] = {"classes": self._target.names}
        for name in ("support", "predicted", "correct", "confusion"):
            found[name] = tuple(map(int, getattr(self, f"_{name}")))
        if self._target.kind == "mask":
            return found | {"counts_of": "pixels"}
        error = float(np.abs(self._bins[1] - self._bins[2]).sum()) / int(self._support.sum())
        return found | {"calibration_error": min(1.0, error), "calibration_bins": CALIBRATION_BINS}


def _by_confidence(confidences_B: npt.NDArray[np.float32], correct_B: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
    """Return [3, bins]: samples, correct ones, and the sum of confidences; bin i is (i / bins, (i + 1) / bins]."""
    confidences = confidences_B.astype(np.float64)
    bins_B = np.clip(np.ceil(confidences * CALIBRATION_BINS).astype(int) - 1, 0, CALIBRATION_BINS - 1)
    weights = (np.ones(len(confidences)), correct_B.astype(np.float64), confidences)
    return np.stack([np.bincount(bins_B, weight, CALIBRATION_BINS) for weight in weights])


def _counted(places: Array, count: int) -> Array:
    return np.bincount(places, minlength=count)
