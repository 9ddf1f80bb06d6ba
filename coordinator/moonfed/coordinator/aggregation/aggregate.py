"""The end of a round: combines its initial global state and its updates into the next, one file per role."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from moonfed.blobs.tensors import model_size
from moonfed.bundle.manifest import MODEL, PROTOTYPES, VARIATE
from moonfed.coordinator.aggregation.closed_round import ClosedRound
from moonfed.coordinator.aggregation.control_variate import write_next_variate
from moonfed.coordinator.aggregation.model_files import (
    SLICE_ELEMENTS,
    is_parameter,
    read_elements,
    weighted_sum,
    writers,
)
from moonfed.coordinator.aggregation.private_reduction import (
    PrivateReduction,
    reduce_privately,
    require_private_aggregation,
)
from moonfed.coordinator.aggregation.prototypes import write_next_prototypes
from moonfed.coordinator.aggregation.robust.incident import Incident
from moonfed.coordinator.aggregation.robust.pipeline import reduce_robustly
from moonfed.coordinator.aggregation.robust.reduction import RobustReduction
from moonfed.coordinator.aggregation.shapes import read_only, require_shape
from moonfed.coordinator.privacy.mechanism import PrivateRelease
from moonfed.errors import InvalidInput
from moonfed.server_rules import SERVER_RULES
from moonfed.server_rules.server_rule import Float64Array, ServerRule

RESERVED = frozenset({MODEL, VARIATE, PROTOTYPES})  # roles that no server rule may use for its memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregated:
    """The outcome of a round's aggregation."""

    files: Mapping[str, Path]  # the next global state by role: the model, and everything else that the next round needs
    incidents: tuple[Incident, ...]
    release: PrivateRelease | None = None  # of a private round


def aggregate(closed: ClosedRound, directory: Path, *, slice_elements: int = SLICE_ELEMENTS) -> Aggregated:
    """Write the next global state into a directory.

    Raises InvalidInput if the result overflows float32 with the server rule's settings, the reducer needs more updates,
    or a private round's devices sent anything besides parameters. The result is bit for bit determined by the
    arguments. `slice_elements` affects only memory use and, in the last bit, the norms and distances that robust
    aggregation and privacy measure over whole updates.
    """
    rule, downlink = build_rule(closed), closed.manifest.downlink
    memory = rule.initial_memory
    files = {role: directory / role for role in (MODEL, *memory)}
    updates = _reduction(closed, rule, slice_elements)
    _write_next_model(closed, rule, updates, files)
    incidents = updates.incidents()
    if VARIATE in downlink:
        files[VARIATE] = directory / VARIATE
        write_next_variate(closed, files[VARIATE], slice_elements)
    if PROTOTYPES in downlink:
        files[PROTOTYPES] = directory / PROTOTYPES
        incidents += write_next_prototypes(closed, files[PROTOTYPES])
    release = updates.release if isinstance(updates, PrivateReduction) else None
    return Aggregated(files=files, incidents=incidents, release=release)


def build_rule(closed: ClosedRound) -> ServerRule:
    """Construct the bundle's server rule; InvalidInput if its memory would overwrite another role's."""
    rule = SERVER_RULES.build(closed.manifest.server_rule)
    if taken := sorted(RESERVED & set(rule.initial_memory)):
        raise InvalidInput(
            field="server_rule", value=rule.name, rest=f", whose memory has the reserved name {taken[0]!r}; rename it"
        )
    return rule


def _reduction(closed: ClosedRound, rule: ServerRule, slice_elements: int) -> RobustReduction | PrivateReduction:
    if closed.privacy is None:
        return reduce_robustly(closed, rule.weighting, slice_elements)
    require_private_aggregation(closed.manifest, rule)
    return reduce_privately(closed, closed.privacy, slice_elements)


def _write_next_model(
    closed: ClosedRound, rule: ServerRule, updates: RobustReduction | PrivateReduction, files: Mapping[str, Path]
) -> None:
    """Move parameters by the rule; statistics are the weighted mean, or the reducer's result."""
    specs = closed.manifest.tensors
    size = model_size(specs)
    initial = rule.initial_memory
    weigh_steps = _mean_by_steps(closed, rule)
    with writers(files, specs) as writing:
        for start, stop in updates.ranges:
            mean, parameter = updates.reduce(start, stop), is_parameter(specs, start, stop)
            w = read_elements(closed.global_state[MODEL], size, start, stop).astype(np.float64)
            before = {role: read_only(_remembered(closed, role, value, start, stop)) for role, value in initial.items()}
            target = weigh_steps(w, start, stop) if weigh_steps else mean
            moved, memory = rule.step(read_only(w), read_only(target), before)
            if set(memory) != set(before):
                raise InvalidInput(
                    f"server_rule {rule.name!r} returned the memory {sorted(memory)}; it must return {sorted(before)}",
                    field="server_rule",
                    value=rule.name,
                )
            for values in (moved, *memory.values()):
                require_shape(f"server_rule {rule.name!r}", values, w.shape)
            writing[MODEL].write(np.where(parameter, moved, mean))
            for role, values in memory.items():
                writing[role].write(np.where(parameter, values, 0.0))


def _mean_by_steps(closed: ClosedRound, rule: ServerRule) -> Callable[[Float64Array, int, int], Float64Array] | None:
    """Compute w + Σ q_i·(w_i − w) of a slice, for a rule that counts steps."""
    if not rule.counts_steps:
        return None
    weights, size = closed.weights(rule.weighting), model_size(closed.manifest.tensors)
    steps = [contribution.steps for contribution in closed.contributions]
    q = rule.step_weights([weight / sum(weights) for weight in weights], steps, local_momentum(closed))

    def mean(w: Float64Array, start: int, stop: int) -> Float64Array:
        return w + (weighted_sum(closed.models, q, size, start, stop) - sum(q) * w)

    return mean


def local_momentum(closed: ClosedRound) -> float:
    """Return ρ of the round's local training."""
    return closed.manifest.training_at(closed.round).hyperparameters.get("momentum", 0.0)


def _remembered(closed: ClosedRound, role: str, initial: float, start: int, stop: int) -> Float64Array:
    path = closed.global_state.get(role)
    if path is None:
        return np.full(stop - start, initial)
    return read_elements(path, model_size(closed.manifest.tensors), start, stop).astype(np.float64)
