"""Predictions, accuracy, loss and more of bound ONNX graphs on arrays. Needs no torch.

Legend: N samples, B a batch of them, C classes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnxruntime

from moonfed.bundle.target import OUTPUTS
from moonfed.control.held_out_score import MAX_CONFUSION, HeldOutScore
from moonfed.data.data_set import DataSet, Inputs, Labels
from moonfed.models.onnx_runtime import ONNX_FORMAT
from moonfed.plan.inspection.graph import require_self_contained

BATCH = 256  # samples at once
CALIBRATION_BINS = 15  # of equal width, as in Guo et al., On Calibration of Modern Neural Networks (2017)
_SMALLEST = float(np.finfo(np.float32).tiny)  # stands for a probability that underflowed, to avoid an infinite loss
_ERRORS_ONLY = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """The accuracy and loss of a model on some data."""

    accuracy: float  # top-1, 0 to 1
    loss: float  # mean cross-entropy, nats


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

    def __init__(self, graph: bytes) -> None:
        self._session = open_session(graph)
        self._output = next(node.name for node in self._session.get_outputs() if node.name in OUTPUTS)

    def predict(self, inputs: Inputs) -> npt.NDArray[np.float32]:
        """Compute probabilities, values or scores [N, …] of raw samples [N, …] in one pass."""
        (outputs,) = self._session.run([self._output], {"inputs": inputs})
        return np.asarray(outputs, dtype=np.float32)

    def score(self, inputs: Inputs, labels: Labels) -> Score:
        """Compute accuracy and loss over all samples, batch by batch."""
        correct, loss = 0, 0.0
        for probabilities_BC, labels_B in self._batches(inputs, labels):
            correct += int((probabilities_BC.argmax(axis=1) == labels_B).sum())
            loss += _summed_loss(probabilities_BC, labels_B)
        return Score(accuracy=correct / len(labels), loss=loss / len(labels))

    def held_out_score(self, data: HeldOutData, classes: Sequence[str]) -> HeldOutScore:
        """Compute all that is recorded of a model's predictions on a test set, batch by batch."""
        predicted = list[npt.NDArray[np.int64]]()
        bins = np.zeros((3, CALIBRATION_BINS))
        loss = 0.0
        labels_N = data.samples.labels
        for probabilities_BC, labels_B in self._batches(data.samples.inputs, labels_N):
            predicted.append(probabilities_BC.argmax(axis=1))
            loss += _summed_loss(probabilities_BC, labels_B)
            bins += _by_confidence(probabilities_BC.max(axis=1), predicted[-1] == labels_B)
        predicted_N, count = np.concatenate(predicted), len(classes)
        places = labels_N * count + predicted_N if count <= MAX_CONFUSION else None
        correct = _counted(labels_N[predicted_N == labels_N], count)
        return HeldOutScore(
            test_set=data.name,
            sha256=data.sha256,
            samples=len(labels_N),
            accuracy=sum(correct) / len(labels_N),
            loss=loss / len(labels_N),
            calibration_error=min(1.0, float(np.abs(bins[1] - bins[2]).sum()) / len(labels_N)),
            calibration_bins=CALIBRATION_BINS,
            classes=tuple(classes),
            support=_counted(labels_N, count),
            predicted=_counted(predicted_N, count),
            correct=correct,
            confusion=() if places is None else _counted(places, count * count),
        )

    def _batches(self, inputs: Inputs, labels: Labels) -> Iterator[tuple[npt.NDArray[np.float32], Labels]]:
        """Yield probabilities and labels of each batch."""
        for start in range(0, len(labels), BATCH):
            yield self.predict(inputs[start : start + BATCH]), labels[start : start + BATCH]


def _summed_loss(probabilities_BC: npt.NDArray[np.float32], labels_B: Labels) -> float:
    label_probabilities_B = probabilities_BC[np.arange(len(labels_B)), labels_B].astype(np.float64)
    return -float(np.log(np.maximum(label_probabilities_B, _SMALLEST)).sum())


def _by_confidence(confidences_B: npt.NDArray[np.float32], correct_B: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
    """Return [3, bins]: samples, correct ones, and the sum of confidences; bin i is (i / bins, (i + 1) / bins]."""
    confidences = confidences_B.astype(np.float64)
    bins_B = np.clip(np.ceil(confidences * CALIBRATION_BINS).astype(int) - 1, 0, CALIBRATION_BINS - 1)
    weights = (np.ones(len(confidences)), correct_B.astype(np.float64), confidences)
    return np.stack([np.bincount(bins_B, weight, CALIBRATION_BINS) for weight in weights])


def _counted(labels: Labels, classes: int) -> tuple[int, ...]:
    return tuple(map(int, np.bincount(labels, minlength=classes)))
