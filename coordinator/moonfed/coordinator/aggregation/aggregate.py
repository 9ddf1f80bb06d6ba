"""The end of a round: from what it began with and its updates to the next global state, a file for each role."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from moonfed.coordinator.aggregation.closed_round import ClosedRound
from moonfed.coordinator.aggregation.model_files import SLICE, Memory, Slice, is_parameter, read, weighted_sum, writers
from moonfed.coordinator.aggregation.prototypes import next_prototypes
from moonfed.coordinator.aggregation.robust.incident_record import Incident
from moonfed.coordinator.aggregation.robust.pipeline import reduce_robustly
from moonfed.coordinator.aggregation.server_rules import adaptive, fedavgm, fednova, scaffold
from moonfed.manifest import MODEL, PROTOTYPES, VARIATE
from moonfed.server_rules import AdaptiveRule, FedAvgM, FedNova, ServerRule
from moonfed.tensors import model_size


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregated:
    """What a round's updates came to."""

    files: Mapping[str, Path]  # the next global state by role: the model, and all that the next round needs beside it
    incidents: tuple[Incident, ...]  # what robust aggregation did


def aggregate(closed: ClosedRound, directory: Path, *, slice_elements: int = SLICE) -> Aggregated:
    """Writes the next global state into a directory.

    Raises InvalidInput if the server rule's settings lead out of float32's range, or the reducer needs more updates.
    The result depends on nothing but the arguments, bit for bit; `slice_elements` decides how much memory it takes, and
    about the last bit of what robust aggregation measures of whole updates.
    """
    rule, downlink = closed.manifest.server_rule, closed.manifest.downlink
    roles = [MODEL, *remembered(rule), *(role for role in (VARIATE, PROTOTYPES) if role in downlink)]
    files = {role: directory / role for role in roles}
    incidents = _next_model(closed, {role: files[role] for role in (MODEL, *remembered(rule))}, slice_elements)
    if VARIATE in files:
        scaffold.next_variate(closed, files[VARIATE], slice_elements)
    if PROTOTYPES in files:
        incidents += next_prototypes(closed, files[PROTOTYPES])
    return Aggregated(files=files, incidents=incidents)


def remembered(rule: ServerRule) -> Mapping[str, float]:
    """The roles of what a rule remembers, in the model's layout, and their values before the first round."""
    if isinstance(rule, FedAvgM):
        return {fedavgm.MOMENTUM: 0.0}
    if isinstance(rule, AdaptiveRule):
        return {adaptive.FIRST_MOMENT: 0.0, adaptive.SECOND_MOMENT: rule.adaptivity**2}
    return {}


def _next_model(closed: ClosedRound, files: Mapping[str, Path], slice_elements: int) -> tuple[Incident, ...]:
    """Parameters by the rule, statistics by the weighted mean, or what robust aggregation puts in its place."""
    specs, updates = closed.manifest.tensors, reduce_robustly(closed, slice_elements)
    with writers(files, specs) as writing:
        for start, stop in updates.ranges:
            mean = updates.reduce(start, stop)
            parameter = is_parameter(specs, start, stop)
            moved, memory = _apply(closed, mean, start, stop)
            writing[MODEL].write(np.where(parameter, moved, mean))
            for role, values in memory.items():
                writing[role].write(np.where(parameter, values, 0.0))
    return updates.incidents()


def _apply(closed: ClosedRound, mean: Slice, start: int, stop: int) -> tuple[Slice, Memory]:
    """What the rule makes of a slice: its parameters and what it remembers."""
    rule, size = closed.manifest.server_rule, model_size(closed.manifest.tensors)
    if not isinstance(rule, FedAvgM | FedNova | AdaptiveRule):
        return mean, {}
    w = read(closed.begun_with[MODEL], size, start, stop).astype(np.float64)
    if isinstance(rule, FedNova):
        q = _nova_coefficients(closed, rule)
        return fednova.step(w, weighted_sum(closed.models, q, size, start, stop), q), {}
    memory = {role: _remembered(closed, role, value, start, stop) for role, value in remembered(rule).items()}
    if isinstance(rule, FedAvgM):
        return fedavgm.step(rule, w, mean - w, memory)
    return adaptive.step(rule, w, mean - w, memory)


def _nova_coefficients(closed: ClosedRound, rule: FedNova) -> list[float]:
    weights, momentum = closed.weights(rule.weighting), local_momentum(closed)
    a = [fednova.effective_steps(contribution.steps, momentum) for contribution in closed.contributions]
    return fednova.coefficients([weight / sum(weights) for weight in weights], a)


def local_momentum(closed: ClosedRound) -> float:
    """ρ of the round's local training."""
    return closed.manifest.training_at(closed.round).hyperparameters.get("momentum", 0.0)


def _remembered(closed: ClosedRound, role: str, before: float, start: int, stop: int) -> Slice:
    path = closed.begun_with.get(role)
    if path is None:
        return np.full(stop - start, before)
    return read(path, model_size(closed.manifest.tensors), start, stop).astype(np.float64)
