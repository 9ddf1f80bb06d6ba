"""The reducers that make a weighted mean: what each update weighs, and whom they have something against.

`mean`, `multi_krum` and `geometric_median` do; `median` and `trimmed_mean` go by coordinates instead.
Legend: N devices.
"""

from __future__ import annotations

import numpy as np

from moonfed.coordinator.aggregation.model_files import Slice
from moonfed.coordinator.aggregation.robust import geometric_median, krum
from moonfed.coordinator.aggregation.robust.config import Reducer, RobustSettings
from moonfed.coordinator.aggregation.robust.incidents import Objection, far_off

INNER_PRODUCTS: frozenset[Reducer] = frozenset({"multi_krum", "geometric_median"})  # all that these have to know
BY_COORDINATES: frozenset[Reducer] = frozenset({"median", "trimmed_mean"})


def weigh(robust: RobustSettings, gram: Slice, alpha: Slice) -> tuple[Slice, list[Objection]]:
    """What each update weighs, [N], for one of the INNER_PRODUCTS; `alpha` is what it weighs by its samples."""
    if robust.reducer == "geometric_median":
        beta = geometric_median.shares(gram, alpha)
        return beta, far_off(geometric_median.distances(gram, beta))
    scores = krum.score(gram, robust.byzantine)
    weights, median = krum.selected(scores, robust.byzantine), float(np.median(scores))
    left_out = [Objection(position=int(i), figure=scores[i], median=median) for i in np.flatnonzero(weights == 0)]
    return weights, left_out
