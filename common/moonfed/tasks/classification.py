"""Classification: one class for each sample.

Sources: focal loss: Lin, Goyal, Girshick, He, Dollár, Focal Loss for Dense Object Detection (ICCV 2017); label
smoothing: Szegedy, Vanhoucke, Ioffe, Shlens, Wojna (CVPR 2016), section 7.
Legend: B samples, C classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from moonfed.bundle.manifest import ACCURACY, Metric
from moonfed.bundle.target import Kind, TargetSpec
from moonfed.tasks.task import Array, Scorer, Task, cross_entropy
from moonfed.validate import require, require_at_least


class ClassScorer(Scorer):
    """Accuracy and mean cross-entropy."""

    def __init__(self) -> None:
        self.samples, self.correct, self.loss = 0, 0, 0.0

    def add(self, outputs: Array, targets: Array, inputs: Array) -> None:
        """Add probabilities [B, C] and labels [B]."""
        self.samples += len(targets)
        self.correct += int((outputs.argmax(axis=1) == targets).sum())
        right = outputs[np.arange(len(targets)), targets]
        self.loss += float(cross_entropy(right).sum())

    def metrics(self) -> dict[str, float]:
        """Return accuracy and loss, in nats."""
        return {"accuracy": self.correct / self.samples, "loss": self.loss / self.samples}


@dataclass(frozen=True, slots=True, kw_only=True)
class Classification(Task):
    """`label_smoothing` and `class_weights` apply to training alone, not to what is reported.

    `class_weights`: one number for each class, separated by commas; `balanced`: n / (C · n_c) of each device's own
    samples; empty: all 1. `focus`: the exponent of the focal loss.
    """

    name: ClassVar[str] = "classification"
    target: ClassVar[Kind] = "class"
    metric: ClassVar[Metric] = ACCURACY
    criterion: ClassVar[str] = "moonfed.export.criteria.classification:ClassCriterion"

    loss: Literal["cross-entropy", "focal"] = "cross-entropy"
    label_smoothing: float = 0.0
    class_weights: str = ""
    focus: float = 2.0

    def __post_init__(self) -> None:
        require_at_least("label_smoothing", self.label_smoothing, 0.0, below=1.0)
        require_at_least("focus", self.focus, 0.0)
        _ = self.weights

    @property
    def weights(self) -> tuple[float, ...]:
        """The weights of the classes; empty: all 1, or balanced."""
        if self.class_weights in ("", "balanced"):
            return ()
        texts = self.class_weights.split(",")
        allowed = "'balanced', or a number above 0 for each class, separated by commas"
        require(all(map(_is_positive, texts)), "class_weights", self.class_weights, allowed)
        return tuple(map(float, texts))

    def scorer(self, target: TargetSpec) -> Scorer:
        """Return an empty scorer."""
        return ClassScorer()


def _is_positive(text: str) -> bool:
    try:
        return 0 < float(text) < float("inf")
    except ValueError:
        return False
