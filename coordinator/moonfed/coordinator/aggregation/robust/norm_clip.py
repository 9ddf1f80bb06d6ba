"""Norm clip: a change that is longer than the bound is scaled down to it. Sun et al. 2019, arXiv:1911.07963.

The bound is absolute, or a multiple of the median of the round's norms, which half of the devices would have to
lie to move; the smaller one counts if there are both. Norms and scales are [N], N devices.
"""

from __future__ import annotations

import numpy as np

from moonfed.coordinator.aggregation.model_files import Slice


def bound(norms: Slice, *, clip_norm: float = 0.0, clip_factor: float) -> float:
    """The longest change that is let pass; 0 for a setting stands for: not that."""
    bounds = [clip_norm] if clip_norm else []
    bounds += [clip_factor * float(np.median(norms))] if clip_factor else []
    return min(bounds, default=np.inf)


def scales(norms: Slice, longest: float) -> Slice:
    """What each change is multiplied by, [N], from 0 to 1."""
    found = np.ones(len(norms))
    too_long = norms > longest
    found[too_long] = longest / norms[too_long]
    return found
