"""The norm clip and the reducers on vectors that fit in memory, such as the devices' means of one class.

Legend: N devices, D elements of a vector.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from moonfed.coordinator.aggregation.model_files import Slice
from moonfed.coordinator.aggregation.robust import norm_clip
from moonfed.coordinator.aggregation.robust.config import RobustSettings
from moonfed.coordinator.aggregation.robust.coordinatewise import trimmed
from moonfed.coordinator.aggregation.robust.incidents import far_off
from moonfed.coordinator.aggregation.robust.weighted_reducers import BY_COORDINATES, INNER_PRODUCTS, weigh


@dataclass(frozen=True, slots=True, kw_only=True)
class ReducedRows:
    """The vectors' robust mean, [D], and the positions of those with incidents."""

    result: Slice
    clipped: list[int]
    objected: list[int]


def longest(robust: RobustSettings, rows: Slice) -> float:
    """The bound of such vectors' lengths: by `clip_factor` alone, which has no units."""
    return norm_clip.bound(_norms(rows), clip_factor=robust.clip_factor)


def reduce_rows(robust: RobustSettings, rows: Slice, longest: float) -> ReducedRows:
    """Reduces vectors that count alike, after those that are too long were scaled down."""
    scales = norm_clip.scales(_norms(rows), longest)
    rows = rows * scales[:, None]
    clipped = [int(position) for position in np.flatnonzero(scales != 1.0)]
    if robust.reducer in BY_COORDINATES:
        result = trimmed(robust, rows)
        objections = far_off(np.sqrt(np.square(rows - result).sum(axis=1)))
    elif robust.reducer in INNER_PRODUCTS:
        weights, objections = weigh(robust, rows @ rows.T, np.ones(len(rows)))
        result = weights @ rows / weights.sum()
    else:
        result, objections = rows.sum(axis=0) / len(rows), []
    return ReducedRows(result=result, clipped=clipped, objected=[one.position for one in objections])


def _norms(rows: Slice) -> Slice:
    norms: Slice = np.sqrt(np.einsum("nd,nd->n", rows, rows))
    return norms
