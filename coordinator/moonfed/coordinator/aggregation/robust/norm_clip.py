"""Norm clip: scales changes that are longer than the bound down to it. Sun et al. 2019, arXiv:1911.07963.

The bound is absolute, or a multiple of the median of the round's norms, the lower one of an even number, which
attackers can raise at will only if they send more than half of the updates; if both are set, the smaller one applies.
Norms and scales are [N], N devices.
"""

from __future__ import annotations

import numpy as np

from moonfed.coordinator.aggregation.robust.outliers import FAR
from moonfed.server_rules.server_rule import Float64Array


def bound(norms: Float64Array, *, clip_norm: float = 0.0, clip_factor: float) -> float:
    """Return the longest change that is not scaled down; a setting of 0 sets no bound."""
    bounds = [clip_norm] if clip_norm else []
    bounds += [clip_factor * lower_median(norms)] if clip_factor else []
    return min(bounds, default=np.inf)


def usual(norms: Float64Array, *, clip_norm: float = 0.0, clip_factor: float) -> float:
    """Return the longest change that is no incident: a tight clip scales down half of an honest fleet's changes."""
    return bound(norms, clip_norm=clip_norm, clip_factor=clip_factor and max(clip_factor, FAR))


def lower_median(norms: Float64Array) -> float:
    """Return the median, of an even number the lower of the two in the middle."""
    return float(np.partition(norms, (len(norms) - 1) // 2)[(len(norms) - 1) // 2])


def scales(norms: Float64Array, longest: float) -> Float64Array:
    """Return the factor of each change, [N], from 0 to 1."""
    factors = np.ones(len(norms))
    too_long = norms > longest
    factors[too_long] = longest / norms[too_long]
    return factors
