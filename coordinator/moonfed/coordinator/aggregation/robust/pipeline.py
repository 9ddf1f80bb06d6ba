"""Robust aggregation of a closed round: weight cap, norm clip, and the reducer's preparation.

Parameters and statistics are judged separately: they have different units, and neither must hide the other. A device
whose parameters are clipped has its statistics scaled by the same factor, since they come from the same training;
`clip_factor` bounds statistics on their own as well. Scaling between two variances gives no negative one. The weight
cap is a share of the cohort, so that missing devices leave the others no more weight. Legend: N devices.
"""

from __future__ import annotations

import numpy as np

from moonfed.blobs.schema import Kind
from moonfed.bundle.manifest import MODEL
from moonfed.coordinator.aggregation.closed_round import ClosedRound
from moonfed.coordinator.aggregation.robust import norm_clip
from moonfed.coordinator.aggregation.robust.config import build_reducer
from moonfed.coordinator.aggregation.robust.incidents import RankedIncident, clip_incident, outlier_incident
from moonfed.coordinator.aggregation.robust.model_changes import ModelChanges, PerKind
from moonfed.coordinator.aggregation.robust.reducers.reducer import WeightingReducer
from moonfed.coordinator.aggregation.robust.reduction import PARTS, RobustReduction
from moonfed.coordinator.aggregation.robust.weight_cap import cap_weights
from moonfed.server_rules.server_rule import Float64Array, Weighting


def reduce_robustly(closed: ClosedRound, weighting: Weighting, slice_elements: int) -> RobustReduction:
    """Prepare the reduction of a round's updates; it takes one pass over them if anything must be measured.

    Raises InvalidInput if there are too few updates for the reducer.
    """
    reducer, devices = build_reducer(closed.settings), [contribution.device for contribution in closed.contributions]
    reducer.require_enough(len(devices))
    changes = ModelChanges(global_model=closed.global_state[MODEL], models=closed.models, specs=closed.manifest.tensors)
    alpha, moved = _capped_weights(closed, weighting)
    grams = changes.grams(slice_elements) if isinstance(reducer, WeightingReducer) else {}
    scales, measured = _clip(closed, _norms(closed, changes, grams, slice_elements))
    weights: dict[Kind, Float64Array] = dict.fromkeys(PARTS, alpha)
    if isinstance(reducer, WeightingReducer):
        for kind, gram in grams.items():
            clipped = gram * np.outer(scales[kind], scales[kind])
            weights[kind], outliers = reducer.checked_weights(clipped, alpha)
            measured += [outlier_incident(devices[one.position], PARTS[kind], reducer, one) for one in outliers]
    return RobustReduction(
        reducer=reducer,
        devices=devices,
        changes=changes,
        weights=weights,
        scales=scales,
        moved=moved,
        slice_elements=slice_elements,
        measured=measured,
    )


def _capped_weights(closed: ClosedRound, weighting: Weighting) -> tuple[Float64Array, float]:
    """Return the updates' weights after the cap, [N], and their sum, as a share of the weight of all."""
    weights, cap = closed.weights(weighting), closed.settings.weight_cap
    if not cap:
        return np.array(weights, np.float64), 1.0
    capped = cap_weights(weights, cap / closed.cohort)
    return np.array(capped, np.float64), min(1.0, cap * len(weights) / closed.cohort)


def _norms(closed: ClosedRound, changes: ModelChanges, grams: PerKind, slice_elements: int) -> PerKind:
    """Return the lengths of the changes, [N], if they are needed."""
    if not closed.settings.clips:
        return {}
    if grams:
        return {kind: np.sqrt(gram.diagonal()) for kind, gram in grams.items()}
    return {kind: np.sqrt(squares) for kind, squares in changes.squared_norms(slice_elements).items()}


def _clip(closed: ClosedRound, norms: PerKind) -> tuple[PerKind, list[RankedIncident]]:
    """Return the factor of each change, [N], and an incident for each that was unusually long."""
    scales, incidents = dict.fromkeys(PARTS, np.ones(len(closed.contributions))), list[RankedIncident]()
    for kind, lengths in norms.items():
        clip_norm = closed.settings.clip_norm if kind == "parameter" else 0.0  # statistics have other units
        longest = norm_clip.bound(lengths, clip_norm=clip_norm, clip_factor=closed.settings.clip_factor)
        usual = norm_clip.usual(lengths, clip_norm=clip_norm, clip_factor=closed.settings.clip_factor)
        scales[kind] = norm_clip.scales(lengths, longest)
        for i in np.flatnonzero(lengths > usual):
            incidents.append(clip_incident(closed.contributions[i].device, PARTS[kind], float(lengths[i]), longest))
    scales["statistic"] = np.minimum(scales["statistic"], scales["parameter"])
    return scales, incidents
