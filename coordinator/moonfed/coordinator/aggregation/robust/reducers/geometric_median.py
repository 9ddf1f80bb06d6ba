"""The geometric median: the point whose weighted distances to the updates have the smallest sum.

RFA: Pillutla, Kakade, Harchaoui, IEEE Transactions on Signal Processing 2022, algorithm 2: Weiszfeld's iteration,

    v ← Σ β_i·y_i,    β_i ∝ α_i / max(ν, ‖y_i − v‖),

smoothed by ν, and weighted by α as the mean is. v stays a weighted mean of the updates, so distances follow from the
inner products of the changes, and one pass over the updates is enough for any number of iterations.
Legend: N devices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from moonfed.coordinator.aggregation.robust.outliers import Outlier, far_outliers
from moonfed.coordinator.aggregation.robust.reducers.reducer import WeightingReducer, majority, require_byzantine
from moonfed.server_rules.server_rule import Float64Array
from moonfed.validate import require_whole

MAX_ITERATIONS = 1_000_000
TOLERANCE = 1e-6  # relative: the share of an update that is 10^30 away must end at 10^-30 of the others'
SMOOTHING = 1e-6  # ν, as a share of the median length of a change; the paper's is absolute
LEAST_SMOOTHING = 1e-100


@dataclass(frozen=True, slots=True, kw_only=True)
class GeometricMedian(WeightingReducer):
    """The point nearest to all updates. RFA, Pillutla et al., 2022."""

    name: ClassVar[str] = "geometric_median"
    ignores_weights: ClassVar[bool] = False
    byzantine: int = 0  # faulty or malicious devices of a round; decides only how many updates a round needs
    iterations: int = 1000  # at most; the paper takes 3 or 4

    def __post_init__(self) -> None:
        require_byzantine(self.byzantine)
        require_whole("iterations", self.iterations, 1, MAX_ITERATIONS)

    @property
    def updates_needed(self) -> int:
        """A majority of honest devices."""
        return majority(self.byzantine)

    def weigh(self, gram_NN: Float64Array, weights_N: Float64Array) -> tuple[Float64Array, Sequence[Outlier]]:
        """Return the β, whose sum is 1."""
        smoothing = max(SMOOTHING * float(np.sqrt(np.median(gram_NN.diagonal()))), LEAST_SMOOTHING)
        beta = weights_N / weights_N.sum()
        for _ in range(self.iterations):
            before = beta
            pull = weights_N / np.maximum(distances(gram_NN, beta), smoothing)
            beta = pull / pull.sum()
            if np.allclose(beta, before, rtol=TOLERANCE, atol=0.0):
                break
        return np.asarray(beta), far_outliers(distances(gram_NN, beta))


def distances(gram_NN: Float64Array, beta: Float64Array) -> Float64Array:
    """Return how far each update is from the mean with these weights, [N]."""
    inner = gram_NN @ beta
    squares: Float64Array = gram_NN.diagonal() - 2 * inner + beta @ inner
    roots: Float64Array = np.sqrt(np.maximum(squares, 0.0))
    return roots
