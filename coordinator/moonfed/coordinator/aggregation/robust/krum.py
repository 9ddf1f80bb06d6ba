"""Multi-Krum: the mean of the updates that lie closest to their neighbours. Blanchard et al., NeurIPS 2017, section 4.

An update's score is the sum of its squared distances to its n − f − 2 nearest others; the n − f with the lowest scores
are averaged, all alike. Legend: N devices.
"""

from __future__ import annotations

import numpy as np

from moonfed.coordinator.aggregation.model_files import Slice


def score(gram: Slice, byzantine: int) -> Slice:
    """Each update's score, [N], from the inner products of the changes."""
    norms = gram.diagonal()
    distances = np.maximum(norms[:, None] + norms[None, :] - 2 * gram, 0.0)
    np.fill_diagonal(distances, np.inf)
    nearest: Slice = np.sort(distances, axis=1)[:, : len(gram) - byzantine - 2].sum(axis=1)
    return nearest


def selected(scores: Slice, byzantine: int) -> Slice:
    """1 for the updates that are averaged, 0 for the others, [N]; of equal scores the first device's is taken."""
    weights = np.zeros(len(scores))
    weights[np.argsort(scores, kind="stable")[: len(scores) - byzantine]] = 1.0
    return weights
