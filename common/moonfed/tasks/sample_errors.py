"""The error of a model on each sample, by the kind of target, and the figure that all of them make together.

Two models are compared sample by sample on a device, whose software knows kinds of targets, but not tasks.
Legend: B samples.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from moonfed.bundle.manifest import PADDING
from moonfed.bundle.target import LIKELY, UNKNOWN, Kind
from moonfed.tasks.task import Array, cross_entropy

Errors = npt.NDArray[np.float32]


def sample_errors(kind: Kind, outputs: Array, targets: Array, inputs: Array) -> Errors:
    """Return the errors [B] of a graph's outputs [B, …]; 0 where nothing of a sample's target is known.

    `class`: 1 for a wrong class. `labels`, `mask`: the share of known labels or pixels that are wrong. `values`: the
    mean squared error. `none`: the score. `next`: the mean cross-entropy of the tokens that are no padding.
    """
    if kind == "class":
        errors: Array = outputs.argmax(axis=1) != targets
        return errors.astype(np.float32)
    if kind == "none":
        return np.asarray(outputs, np.float32)
    if kind == "values":
        squares: Array = np.square(outputs - targets).reshape(len(outputs), -1)
        return np.asarray(squares.mean(axis=1), np.float32)
    if kind == "next":
        following = inputs[:, 1:]
        right = np.take_along_axis(outputs[:, :-1], following[:, :, None], axis=2)[:, :, 0]
        wrong, known = cross_entropy(right), following != PADDING
    else:
        found = outputs >= LIKELY if kind == "labels" else outputs.argmax(axis=1)
        wrong, known = (found != targets).astype(np.float64), targets != UNKNOWN
    wrong, known = (each.reshape(len(outputs), -1) for each in (wrong, known))
    return np.asarray((wrong * known).sum(axis=1) / np.maximum(1, known.sum(axis=1)), np.float32)
