"""Rounds with privacy on hand-made files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from moonfed.blobs.store import ref_of_file
from moonfed.blobs.tensors import TensorSpec, model_size
from moonfed.bundle.manifest import MODEL
from moonfed.coordinator.aggregation.closed_round import ClosedRound
from moonfed.coordinator.aggregation.model_files import SLICE_ELEMENTS
from moonfed.coordinator.aggregation.private_reduction import PrivateReduction, reduce_privately
from moonfed.coordinator.privacy.mechanism import PrivateRound
from moonfed.server_rules.server_rule import Float64Array
from tests.support.aggregation_rounds import Floats, Rounds, make_manifest

NO_NOISE = 0.0  # no run may have it


def private_round(**fields: Any) -> PrivateRound:
    given = {"attempt": 1, "sampling_rate": 0.1, "expected": 10.0, "noise_multiplier": 1.0, "clip": 1.0}
    return PrivateRound(**{**given, **fields})


def parameters(size: int) -> tuple[TensorSpec, ...]:
    return (TensorSpec("a", (size - size // 3,), "parameter"), TensorSpec("b", (size // 3,), "parameter"))


def closed_privately(
    directory: Path, start: Floats, models: Floats, samples: Sequence[int] | None = None, **fields: Any
) -> ClosedRound:
    """A round from `start`, [S], with a row of `models`, [N, S], for each device; `fields` of its PrivateRound."""
    played = Rounds(directory, make_manifest(tensors=parameters(len(start))), start)
    return privately(played.closed(models, samples or [1] * len(models)), **fields)


def privately(closed: ClosedRound, **fields: Any) -> ClosedRound:
    """The same round with privacy, and with the digests of its files."""
    contributions = tuple(
        replace(contribution, sha256=ref_of_file(contribution.files[MODEL]).sha256)
        for contribution in closed.contributions
    )
    return replace(
        closed,
        contributions=contributions,
        privacy=private_round(**fields),
        global_sha256=ref_of_file(closed.global_state[MODEL]).sha256,
    )


def prepared(closed: ClosedRound, slice_elements: int = SLICE_ELEMENTS) -> PrivateReduction:
    assert closed.privacy
    return reduce_privately(closed, closed.privacy, slice_elements)


def reduced(closed: ClosedRound) -> Float64Array:
    """The noisy mean of all elements, before any server rule."""
    return prepared(closed).reduce(0, model_size(closed.manifest.tensors))


def noise_of(closed: ClosedRound, start: Floats) -> Float64Array:
    """Return what a round of updates equal to `start` adds, in units of its standard deviation."""
    private = closed.privacy
    assert private
    scale = private.clip * private.update_noise_multiplier / private.expected
    return (reduced(closed) - np.asarray(start, np.float32)) / scale
