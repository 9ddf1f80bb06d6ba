"""Reduction of a private round's updates: their noisy mean, slice by slice, in place of robust aggregation.

All devices weigh the same, and one that is missing counts as one that changed nothing. Nothing else that depends on
single updates leaves the round: no incident, and no key of the noise that two different sums would share.
Legend: N devices, S elements of a slice.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from moonfed.bundle.manifest import MODEL, Manifest
from moonfed.coordinator.aggregation.closed_round import ClosedRound
from moonfed.coordinator.aggregation.model_files import ranges
from moonfed.coordinator.aggregation.robust.incident import Incident
from moonfed.coordinator.aggregation.robust.model_changes import ModelChanges
from moonfed.coordinator.privacy.mechanism import PrivateRelease, PrivateRound
from moonfed.coordinator.privacy.noise import GaussianNoise, count_key, noise_key
from moonfed.errors import InvalidInput
from moonfed.server_rules.server_rule import Float64Array, ServerRule


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivateReduction:
    """The release of a round, prepared by `reduce_privately`."""

    private: PrivateRound
    changes: ModelChanges
    slice_elements: int
    scales: Float64Array  # s, [N]
    noise: GaussianNoise
    release: PrivateRelease

    @property
    def ranges(self) -> Iterator[tuple[int, int]]:
        """Consecutive ranges that cover the model."""
        return ranges(self.changes.size, self.slice_elements)

    def reduce(self, start: int, stop: int) -> Float64Array:
        """Return w + (Σ s_i·(y_i − w) + noise)/expected, [S], in place of the models' weighted mean."""
        steps = self.private.noise_on_grid(self.noise.normal(start, stop))
        for change, scale in zip(self.changes.one_by_one(start, stop), self.scales, strict=True):
            steps += self.private.on_grid(change, scale)
        return self.changes.global_slice(start, stop) + self.private.mean(steps)

    def incidents(self) -> tuple[Incident, ...]:
        """Return none: they would tell devices' norms."""
        return ()


def reduce_privately(closed: ClosedRound, private: PrivateRound, slice_elements: int) -> PrivateReduction:
    """Measure the updates in one pass, and prepare their reduction."""
    round_, attempt, digest = closed.round, private.attempt, _digest(closed, private)
    changes = ModelChanges(global_model=closed.global_state[MODEL], models=closed.models, specs=closed.manifest.tensors)
    norms = np.sqrt(changes.squared_norms(slice_elements)["parameter"])
    normal = float(GaussianNoise(count_key(closed.draw, round_, attempt, digest)).normal(0, 1)[0])
    release = PrivateRelease(
        updates_digest=closed.draw.digest(f"updates/{round_}/{attempt}", digest).hex(),
        next_clip=private.next_clip(norms, normal),
    )
    return PrivateReduction(
        private=private,
        changes=changes,
        slice_elements=slice_elements,
        scales=private.scales(norms),
        noise=GaussianNoise(noise_key(closed.draw, round_, attempt, digest)),
        release=release,
    )


def require_private_aggregation(manifest: Manifest, rule: ServerRule) -> None:
    """Raise InvalidInput if a bundle's devices send anything that the mechanism does not protect."""
    if manifest.downlink or manifest.uplink:
        roles = ", ".join(sorted({*manifest.downlink, *manifest.uplink}))
        raise InvalidInput(
            field="method",
            value=manifest.method,
            rest=f", which exchanges {roles} in addition to the model; with privacy it must exchange models only",
        )
    if statistics := [spec.name for spec in manifest.tensors if spec.kind == "statistic"]:
        raise InvalidInput(
            field="model",
            value=manifest.model,
            rest=f", which has the statistic {statistics[0]!r}; with privacy it must have parameters only",
        )
    if rule.counts_steps:
        raise InvalidInput(
            field="server_rule", value=rule.name, rest=", which counts devices' steps; with privacy it must be another"
        )


def _digest(closed: ClosedRound, private: PrivateRound) -> str:
    """Return the sha256 of all that the sum and the scale of its noise depend on."""
    updates = sorted((contribution.device, contribution.sha256) for contribution in closed.contributions)
    if not closed.global_sha256 or not all(sha256 for _, sha256 in updates):
        raise InvalidInput("a private round needs the sha256 of every model", field="sha256", value="")
    parameters = [private.clip, private.noise_multiplier, private.sigma_b, private.sampling_rate]
    return hashlib.sha256(json.dumps([*parameters, closed.global_sha256, updates]).encode()).hexdigest()
