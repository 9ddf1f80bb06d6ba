"""The geometric median: the point whose weighted distances to the updates have the smallest sum.

RFA: Pillutla, Kakade, Harchaoui, IEEE Transactions on Signal Processing 2022, algorithm 2: Weiszfeld's iteration,

    v ← Σ β_i·y_i,    β_i ∝ α_i / max(ν, ‖y_i − v‖),

smoothed by ν, and weighted by α as the mean is. v stays a weighted mean of the updates, so distances follow from the
inner products of the changes, and one pass over the updates is enough for any number of iterations.
Legend: N devices.
"""

from __future__ import annotations

import numpy as np

from moonfed.coordinator.aggregation.model_files import Slice

ITERATIONS = 1000
TOLERANCE = 1e-6  # relative: the share of an update that is 10^30 away must end at 10^-30 of the others'
SMOOTHING = 1e-6  # ν, as a share of the median length of a change; the paper's is absolute
LEAST = 1e-100  # in place of a smoothing of 0


def shares(gram: Slice, alpha: Slice) -> Slice:
    """The β of the geometric median, [N], whose sum is 1."""
    smoothing = max(SMOOTHING * float(np.sqrt(np.median(gram.diagonal()))), LEAST)
    beta = alpha / alpha.sum()
    for _ in range(ITERATIONS):
        before = beta
        pull = alpha / np.maximum(distances(gram, beta), smoothing)
        beta = pull / pull.sum()
        if np.allclose(beta, before, rtol=TOLERANCE, atol=0.0):
            break
    return np.asarray(beta)


def distances(gram: Slice, beta: Slice) -> Slice:
    """How far each update is from the mean with these shares, [N]."""
    inner = gram @ beta
    squares: Slice = gram.diagonal() - 2 * inner + beta @ inner
    roots: Slice = np.sqrt(np.maximum(squares, 0.0))
    return roots
