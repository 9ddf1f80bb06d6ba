"""Segmentation: a class for each pixel; pixels of no class are ignored.

Sources: mean intersection over union: Everingham et al., The PASCAL VOC Challenge (IJCV 2010); Dice loss: Milletari,
Navab, Ahmadi, V-Net (3DV 2016).
Legend: B samples, C classes, H height, W width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from moonfed.bundle.manifest import Metric
from moonfed.bundle.target import UNKNOWN, Kind, TargetSpec
from moonfed.tasks.task import Array, Scorer, Task, cross_entropy


class MaskScorer(Scorer):
    """Pixels by class and predicted class."""

    def __init__(self, classes: int) -> None:
        self.confusion = np.zeros((classes, classes), np.int64)  # by class, then by prediction
        self.loss = 0.0

    def add(self, outputs: Array, targets: Array, inputs: Array) -> None:
        """Add probabilities [B, C, H, W] and masks [B, H, W]."""
        classes, known = len(self.confusion), targets != UNKNOWN
        true = targets[known].astype(np.int64)
        probabilities = np.moveaxis(outputs, 1, -1)[known]
        places = true * classes + probabilities.argmax(axis=1)
        self.confusion += np.bincount(places, minlength=classes**2).reshape(classes, classes)
        right = probabilities[np.arange(len(true)), true]
        self.loss += float(cross_entropy(right).sum())

    def metrics(self) -> dict[str, float]:
        """Return mean IoU and mean Dice over the classes that occur, true or predicted, and shares of pixels."""
        hits, pixels = np.diag(self.confusion), int(self.confusion.sum())
        if not pixels:
            return {}
        both = self.confusion.sum(axis=0) + self.confusion.sum(axis=1)
        occurs = both > 0
        return {
            "mean_iou": float(np.mean(hits[occurs] / (both - hits)[occurs])),
            "dice": float(np.mean(2 * hits[occurs] / both[occurs])),
            "pixel_accuracy": float(hits.sum()) / pixels,
            "loss": self.loss / pixels,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Segmentation(Task):
    """Cross-entropy per pixel, or 1 − mean Dice of the classes' probabilities."""

    name: ClassVar[str] = "segmentation"
    target: ClassVar[Kind] = "mask"
    metric: ClassVar[Metric] = Metric(name="mean_iou", maximise=True, share=True)
    others: ClassVar[tuple[str, ...]] = ("dice", "pixel_accuracy")
    criterion: ClassVar[str] = "moonfed.export.criteria.segmentation:MaskCriterion"
    dense: ClassVar[bool] = True

    loss: Literal["cross-entropy", "dice"] = "cross-entropy"

    def scorer(self, target: TargetSpec) -> Scorer:
        """Return an empty scorer."""
        return MaskScorer(len(target.names))
