"""Robust aggregation of a closed round: weight cap, norm clip, and what the reducer has to know before it begins.

Parameters and statistics are judged apart: they have different units, and neither must hide the other. A device whose
parameters are clipped has its statistics scaled alike, since they come from the same training; `clip_factor` bounds
statistics on their own as well. Between two variances lies no negative one.
Legend: N devices.
"""

from __future__ import annotations

import numpy as np

from moonfed.coordinator.aggregation.closed_round import ClosedRound
from moonfed.coordinator.aggregation.model_files import Slice
from moonfed.coordinator.aggregation.robust import norm_clip
from moonfed.coordinator.aggregation.robust.incidents import Noted, clipped, objected
from moonfed.coordinator.aggregation.robust.reduction import NAMES, RobustReduction
from moonfed.coordinator.aggregation.robust.update_norms import Changes, PerKind
from moonfed.coordinator.aggregation.robust.weight_cap import capped
from moonfed.coordinator.aggregation.robust.weighted_reducers import INNER_PRODUCTS, weigh
from moonfed.manifest import MODEL
from moonfed.schema import Kind


def reduce_robustly(closed: ClosedRound, slice_elements: int) -> RobustReduction:
    """What robust aggregation makes of a round's updates; one pass over them if it has to measure anything.

    Raises InvalidInput if there are too few updates for the reducer.
    """
    robust, devices = closed.robust, [contribution.device for contribution in closed.contributions]
    robust.require_enough(len(devices))
    changes = Changes(begun_with=closed.begun_with[MODEL], models=closed.models, specs=closed.manifest.tensors)
    alpha, grams = _alpha(closed), changes.grams(slice_elements) if robust.reducer in INNER_PRODUCTS else {}
    norms = _norms(closed, changes, grams, slice_elements)
    scales, noted = _clip(closed, norms)
    weights: dict[Kind, Slice] = dict.fromkeys(NAMES, alpha)
    for kind, gram in grams.items():
        weights[kind], objections = weigh(robust, gram * np.outer(scales[kind], scales[kind]), alpha)
        noted += [objected(devices[one.position], NAMES[kind], robust.reducer, one) for one in objections]
    return RobustReduction(
        robust=robust,
        devices=devices,
        changes=changes,
        weights=weights,
        scales=scales,
        slice_elements=slice_elements,
        noted=noted,
    )


def _alpha(closed: ClosedRound) -> Slice:
    """What each update weighs, capped, [N]."""
    weights, cap = closed.weights(closed.manifest.server_rule.weighting), closed.robust.weight_cap
    return np.array(capped(weights, cap) if cap else weights, np.float64)


def _norms(closed: ClosedRound, changes: Changes, grams: PerKind, slice_elements: int) -> PerKind:
    """The lengths of the changes, [N], if they have to be known."""
    if not closed.robust.clips:
        return {}
    if grams:
        return {kind: np.sqrt(gram.diagonal()) for kind, gram in grams.items()}
    return {kind: np.sqrt(squares) for kind, squares in changes.squared_norms(slice_elements).items()}


def _clip(closed: ClosedRound, norms: PerKind) -> tuple[PerKind, list[Noted]]:
    """What each change is multiplied by, [N], and whose was too long."""
    robust, scales, noted = closed.robust, dict.fromkeys(NAMES, np.ones(len(closed.contributions))), list[Noted]()
    for kind, lengths in norms.items():
        clip_norm = robust.clip_norm if kind == "parameter" else 0.0  # statistics have other units
        longest = norm_clip.bound(lengths, clip_norm=clip_norm, clip_factor=robust.clip_factor)
        scales[kind] = norm_clip.scales(lengths, longest)
        for i in np.flatnonzero(lengths > longest):
            noted.append(clipped(closed.contributions[i].device, NAMES[kind], float(lengths[i]), longest))
    scales["statistic"] = np.minimum(scales["statistic"], scales["parameter"])
    return scales, noted
