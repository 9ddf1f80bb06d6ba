"""Predictions, accuracy and loss of bound ONNX graphs on arrays. Needs no torch.

Legend: N samples, B a batch of them, C classes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnxruntime

from moonfed.inspection.graph import require_self_contained
from moonfed.samples import Inputs, Labels

BATCH = 256  # samples at once
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
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


class Predictor:
    """A bound graph that predicts on the CPU, so that results do not depend on a machine's accelerator."""

    def __init__(self, graph: bytes) -> None:
        self._session = open_session(graph)

    def predict(self, inputs: Inputs) -> npt.NDArray[np.float32]:
        """Compute class probabilities [N, C] of raw samples [N, …] in one pass."""
        (probabilities,) = self._session.run(["probabilities"], {"inputs": inputs})
        return np.asarray(probabilities, dtype=np.float32)

    def score(self, inputs: Inputs, labels: Labels) -> Score:
        """Compute accuracy and loss over all samples, batch by batch."""
        correct, loss = 0, 0.0
        for start in range(0, len(labels), BATCH):
            labels_B = labels[start : start + BATCH]  # noqa: N806
            probabilities_BC = self.predict(inputs[start : start + BATCH])  # noqa: N806
            correct += int((probabilities_BC.argmax(axis=1) == labels_B).sum())
            label_probabilities_B = probabilities_BC[np.arange(len(labels_B)), labels_B].astype(np.float64)  # noqa: N806
            loss -= float(np.log(np.maximum(label_probabilities_B, _SMALLEST)).sum())
        return Score(accuracy=correct / len(labels), loss=loss / len(labels))
