"""Multi-Krum: the mean of the updates closest to their neighbours. Blanchard et al., NeurIPS 2017, section 4.

An update's score is the sum of its squared distances to its n − f − 2 nearest others; the n − f with the lowest scores
are averaged with equal weights. Legend: N devices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from moonfed.coordinator.aggregation.robust.outliers import Outlier
from moonfed.coordinator.aggregation.robust.reducers.reducer import WeightingReducer, require_byzantine
from moonfed.errors import InvalidInput
from moonfed.server_rules.server_rule import Float64Array


@dataclass(frozen=True, slots=True, kw_only=True)
class MultiKrum(WeightingReducer):
    """The mean of the n − f updates nearest to their neighbours. Blanchard et al., NeurIPS 2017."""

    name: ClassVar[str] = "multi_krum"
    byzantine: int = 0  # f

    def __post_init__(self) -> None:
        require_byzantine(self.byzantine)
        if not self.byzantine:
            raise InvalidInput("byzantine is 0 with reducer 'multi_krum'; it must be at least 1")

    @property
    def updates_needed(self) -> int:
        """n > 2f + 2: Blanchard et al., proposition 1."""
        return 2 * self.byzantine + 3

    @property
    def finding(self) -> str:
        """The finding about an update that is not averaged, as a predicate."""
        return "were left out by multi_krum"

    def describe(self, outlier: Outlier) -> str:
        """Return the finding about one device's update, with its score."""
        return f"{self.finding}, with a score of {outlier.figure:.4g}"

    def weigh(self, gram_NN: Float64Array, weights_N: Float64Array) -> tuple[Float64Array, Sequence[Outlier]]:
        """Return 1 for updates that are averaged and 0 for others; of equal scores the first device's is kept."""
        scores = self.scores(gram_NN)
        weights, median = np.zeros(len(scores)), float(np.median(scores))
        weights[np.argsort(scores, kind="stable")[: len(scores) - self.byzantine]] = 1.0
        left_out = np.flatnonzero(weights == 0)
        return weights, [Outlier(position=int(i), figure=float(scores[i]), median=median) for i in left_out]

    def scores(self, gram_NN: Float64Array) -> Float64Array:
        """Return each update's score, [N]."""
        norms = gram_NN.diagonal()
        distances = np.maximum(norms[:, None] + norms[None, :] - 2 * gram_NN, 0.0)
        np.fill_diagonal(distances, np.inf)
        nearest: Float64Array = np.sort(distances, axis=1)[:, : len(gram_NN) - self.byzantine - 2].sum(axis=1)
        return nearest
