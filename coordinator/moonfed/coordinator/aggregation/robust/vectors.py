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
    """The reduced vector [D], the positions of clipped vectors, and the outliers."""

    result: Float64Array
    clipped: Sequence[int]
    outliers: Sequence[Outlier]


def length_bound(vectors_ND: Float64Array, clip_factor: float) -> float:  # noqa: N803
    """Return the bound on the vectors' lengths, in their own units."""
    return norm_clip.bound(_norms(vectors_ND), clip_factor=clip_factor)


def reduce_vectors(reducer: Reducer, vectors_ND: Float64Array, bound: float) -> ReducedVectors:  # noqa: N803
    """Reduce vectors of equal weight, after scaling down those that are too long."""
    scales = norm_clip.scales(_norms(vectors_ND), bound)
    result, outliers = reducer.reduce_vectors(read_only(vectors_ND * scales[:, None]))
    clipped = [int(position) for position in np.flatnonzero(scales != 1.0)]
    return ReducedVectors(result=result, clipped=clipped, outliers=outliers)


def _norms(vectors_ND: Float64Array) -> Float64Array:  # noqa: N803
    norms: Float64Array = np.sqrt(np.einsum("nd,nd->n", vectors_ND, vectors_ND))
    return norms
