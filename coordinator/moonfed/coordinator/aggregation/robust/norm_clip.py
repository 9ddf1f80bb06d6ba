"""Norm clip: scales changes that are longer than the bound down to it. Sun et al. 2019, arXiv:1911.07963.

The bound is absolute, or a multiple of the median of the round's norms, which attackers can move at will only if they
control half of the devices; if both are set, the smaller one applies. Norms and scales are [N], N devices.
"""

from __future__ import annotations

import numpy as np

from moonfed.server_rules.server_rule import Float64Array


def bound(norms: Float64Array, *, clip_norm: float = 0.0, clip_factor: float) -> float:
    """Return the longest change that is not scaled down; a setting of 0 sets no bound."""
    bounds = [clip_norm] if clip_norm else []
    bounds += [clip_factor * float(np.median(norms))] if clip_factor else []
    return min(bounds, default=np.inf)


def scales(norms: Float64Array, longest: float) -> Float64Array:
    """Return the factor of each change, [N], from 0 to 1."""
    factors = np.ones(len(norms))
    too_long = norms > longest
    factors[too_long] = longest / norms[too_long]
    return factors
