"""The norm clip and the reducers on vectors that fit in memory, such as the devices' means of one class.

Legend: N devices, D elements of a vector.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from moonfed.coordinator.aggregation.robust import norm_clip
from moonfed.coordinator.aggregation.robust.outliers import Outlier
from moonfed.coordinator.aggregation.robust.reducers.reducer import Reducer
from moonfed.coordinator.aggregation.shapes import read_only
from moonfed.server_rules.server_rule import Float64Array


@dataclass(frozen=True, slots=True, kw_only=True)
class ReducedVectors:
    """The reduced vector [D], the positions of clipped vectors that were unusually long, and the outliers."""

    result: Float64Array
    clipped: Sequence[int]
    outliers: Sequence[Outlier]


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthBounds:
    """The longest vector that is not scaled down, and the longest one that is not unusual, in their own units."""

    longest: float
    usual: float


def length_bounds(vectors_ND: Float64Array, clip_factor: float) -> LengthBounds:
    """Return the bounds on the vectors' lengths."""
    norms = _norms(vectors_ND)
    return LengthBounds(
        longest=norm_clip.bound(norms, clip_factor=clip_factor), usual=norm_clip.usual(norms, clip_factor=clip_factor)
    )


def reduce_vectors(reducer: Reducer, vectors_ND: Float64Array, bounds: LengthBounds) -> ReducedVectors:
    """Reduce vectors of equal weight, after scaling down those that are too long."""
    norms = _norms(vectors_ND)
    scales = norm_clip.scales(norms, bounds.longest)
    result, outliers = reducer.reduce_vectors(read_only(vectors_ND * scales[:, None]))
    clipped = [int(position) for position in np.flatnonzero(norms > bounds.usual)]
    return ReducedVectors(result=result, clipped=clipped, outliers=outliers)


def _norms(vectors_ND: Float64Array) -> Float64Array:
    norms: Float64Array = np.sqrt(np.einsum("nd,nd->n", vectors_ND, vectors_ND))
    return norms
