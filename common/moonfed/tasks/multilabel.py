"""Multi-label classification: each label applies to a sample or does not; one that is unknown does not count.

Legend: B samples, L labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from moonfed.bundle.manifest import Metric
from moonfed.bundle.target import LIKELY, UNKNOWN, Kind, TargetSpec
from moonfed.tasks.task import Array, Scorer, Task, cross_entropy


class LabelScorer(Scorer):
    """F1 by label, of which the mean is macro F1; a label that neither occurs nor is predicted counts as 0."""

    def __init__(self, labels: int) -> None:
        self.counts = np.zeros((3, labels), np.int64)  # true positives, false positives, false negatives
        self.known, self.loss = 0, 0.0

    def add(self, outputs: Array, targets: Array, inputs: Array) -> None:
        """Add probabilities [B, L] and labels [B, L]."""
        known, found, true = targets != UNKNOWN, outputs >= LIKELY, targets == 1
        for row, hits in enumerate((found & true, found & ~true & known, ~found & true)):
            self.counts[row] += hits.sum(axis=0)
        right = np.where(true, outputs, 1 - outputs.astype(np.float64))[known]
        self.loss += float(cross_entropy(right).sum())
        self.known += int(known.sum())

    def metrics(self) -> dict[str, float]:
        """Return macro and micro F1, and the mean binary cross-entropy, in nats; nothing if no label is known."""
        if not self.known:
            return {}
        hits, wrong, missed = self.counts
        whole = self.counts.sum(axis=1)
        return {
            "macro_f1": float(np.mean(2 * hits / np.maximum(1, 2 * hits + wrong + missed))),
            "micro_f1": float(2 * whole[0] / max(1, 2 * whole[0] + whole[1] + whole[2])),
            "loss": self.loss / self.known,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Multilabel(Task):
    """Binary cross-entropy of each known label."""

    name: ClassVar[str] = "multilabel"
    target: ClassVar[Kind] = "labels"
    metric: ClassVar[Metric] = Metric(name="macro_f1", maximise=True, share=True)
    others: ClassVar[tuple[str, ...]] = ("micro_f1",)
    criterion: ClassVar[str] = "moonfed.export.criteria.multilabel:LabelCriterion"

    loss: Literal["binary-cross-entropy"] = "binary-cross-entropy"

    def scorer(self, target: TargetSpec) -> Scorer:
        """Return an empty scorer."""
        return LabelScorer(len(target.names))
