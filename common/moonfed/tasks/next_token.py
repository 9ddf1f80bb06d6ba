"""Next-token prediction: a language model, whose targets are its input, shifted by one; padding does not count.

Legend: B samples, T tokens, V vocabulary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from moonfed.bundle.manifest import PADDING, Metric
from moonfed.bundle.target import Kind, TargetSpec
from moonfed.tasks.task import Array, Scorer, Task, cross_entropy


class TokenScorer(Scorer):
    """Cross-entropy and hits over tokens that are no padding."""

    def __init__(self) -> None:
        self.tokens, self.correct, self.loss = 0, 0, 0.0

    def add(self, outputs: Array, targets: Array, inputs: Array) -> None:
        """Add probabilities [B, T, V] and tokens [B, T]: at each place the distribution of the next one."""
        following = inputs[:, 1:]
        known = following != PADDING
        true, probabilities = following[known], outputs[:, :-1][known]
        right = probabilities[np.arange(len(true)), true]
        self.loss += float(cross_entropy(right).sum())
        self.correct += int((probabilities.argmax(axis=1) == true).sum())
        self.tokens += len(true)

    def metrics(self) -> dict[str, float]:
        """Return perplexity, the share of tokens that are predicted, and the loss in nats per token."""
        if not self.tokens:
            return {}
        loss = self.loss / self.tokens
        return {"perplexity": math.exp(loss), "token_accuracy": self.correct / self.tokens, "loss": loss}


@dataclass(frozen=True, slots=True, kw_only=True)
class NextToken(Task):
    """Cross-entropy over tokens that are no padding."""

    name: ClassVar[str] = "next-token"
    target: ClassVar[Kind] = "next"
    metric: ClassVar[Metric] = Metric(name="perplexity", maximise=False, share=False)
    others: ClassVar[tuple[str, ...]] = ("token_accuracy",)
    criterion: ClassVar[str] = "moonfed.export.criteria.next_token:TokenCriterion"
    dense: ClassVar[bool] = True

    loss: Literal["cross-entropy"] = "cross-entropy"

    def scorer(self, target: TargetSpec) -> Scorer:
        """Return an empty scorer."""
        return TokenScorer()
