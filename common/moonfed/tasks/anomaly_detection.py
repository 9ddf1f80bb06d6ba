"""Anomaly detection: a model reproduces its input, and what it reproduces badly is unusual. It needs no labels.

Where a test set says which samples are anomalous, the area under the ROC curve (the probability that an anomalous
sample has the higher score: Hanley, McNeil 1982) says how well the scores tell them apart.
Legend: B samples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from moonfed.bundle.manifest import Metric
from moonfed.bundle.target import Kind, TargetSpec
from moonfed.tasks.task import Array, Scorer, Task

QUANTILE = 0.99  # of usual samples' scores: one of a hundred is called unusual


class AnomalyScorer(Scorer):
    """The scores of all samples, and whether each is anomalous, if that is known."""

    def __init__(self) -> None:
        self.scores = list[Array]()
        self.anomalous = list[Array]()

    def add(self, outputs: Array, targets: Array, inputs: Array) -> None:
        """Add scores [B], and 1 for each anomalous sample [B], or targets without values [B, 0]."""
        self.scores.append(outputs.astype(np.float64))
        self.anomalous.append(targets)

    def metrics(self) -> dict[str, float]:
        """Return the mean score of usual samples, also as the loss, and the AUROC where samples are told apart."""
        scores, anomalous = np.concatenate(self.scores), np.concatenate(self.anomalous)
        if anomalous.ndim > 1:
            error = float(scores.mean())
            return {"reconstruction_error": error, "loss": error}
        usual, unusual = scores[anomalous == 0], scores[anomalous == 1]
        error = float((usual if len(usual) else scores).mean())
        found = {"reconstruction_error": error, "loss": error}
        if len(usual) and len(unusual):
            known = np.concatenate([usual, unusual])
            found["auroc"] = auroc(known, np.arange(len(known)) >= len(usual))
        return found


def threshold(scores: Array, anomalous: Array) -> float:
    """Return the score above which a sample is unusual: the 99th percentile of samples not known to be anomalous.

    `scores` [N], `anomalous` [N] or [N, 0]: as for `AnomalyScorer.add`. If all are anomalous, of all samples.
    """
    usual = scores[anomalous == 0] if anomalous.ndim == 1 else scores
    return float(np.quantile(usual if len(usual) else scores, QUANTILE))


def auroc(scores: Array, positive: Array) -> float:
    """Return the probability that a positive sample has the higher score; equal scores count half."""
    _, places, counts = np.unique(scores, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks = ((last - counts + 1 + last) / 2)[places]
    positives = int(positive.sum())
    above = ranks[positive].sum() - positives * (positives + 1) / 2
    return float(above / (positives * (len(scores) - positives)))


@dataclass(frozen=True, slots=True, kw_only=True)
class AnomalyDetection(Task):
    """The mean squared error of the reproduced input, after preprocessing, is the loss and the score."""

    name: ClassVar[str] = "anomaly-detection"
    target: ClassVar[Kind] = "none"
    metric: ClassVar[Metric] = Metric(name="reconstruction_error", maximise=False, share=False)
    others: ClassVar[tuple[str, ...]] = ("auroc",)
    criterion: ClassVar[str] = "moonfed.export.criteria.anomaly_detection:ReconstructionCriterion"

    loss: Literal["reconstruction"] = "reconstruction"

    def scorer(self, target: TargetSpec) -> Scorer:
        """Return an empty scorer."""
        return AnomalyScorer()
