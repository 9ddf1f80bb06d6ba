"""Checks of a submitted update, all of them before any arithmetic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from moonfed.blobs.encoded_models import largest_file
from moonfed.blobs.store import BlobRef
from moonfed.blobs.tensors import TensorSpec, check_layout, model_size, open_model, require_finite, split
from moonfed.bundle.manifest import CLASS_MEANS, MODEL, Manifest, Roles
from moonfed.coordinator.aggregation.model_files import read_slices
from moonfed.coordinator.aggregation.prototypes import MASK, MEANS
from moonfed.coordinator.records import MAX_SAMPLES, AttemptId
from moonfed.encodings import PLAIN, Encoding
from moonfed.errors import InvalidInput, ResourceExhausted, SchemaMismatch
from moonfed.validate import require_whole

MAX_STEPS = 1_000_000_000
MAX_METRICS, MAX_METRIC_NAME = 64, 64
MAX_METRIC = 1e30  # far from where a weighted sum of a whole fleet's would overflow
HOLDOUT_SAMPLES = "holdout_samples"  # the metric that the other held-out ones are weighted by


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateHeader:
    """A device's announcement of an update, before its bytes."""

    id: AttemptId
    device: str
    blobs: Mapping[str, BlobRef]  # by role
    samples: int
    steps: int
    metrics: Mapping[str, float]
    encoding: Encoding = PLAIN  # of the model
    personal_lost: bool = False  # the device began with the bundle's personal tensors again


def check_header(header: UpdateHeader, largest: Mapping[str, int], wanted: Encoding) -> None:
    """Reject an invalid update by its header, before its bytes are sent.

    `largest`: the largest size of each file in bytes, by role. `wanted`: the run's encoding of models.

    Raises InvalidInput for unknown or missing roles, another encoding or implausible numbers; ResourceExhausted for a
    file that is too large for its role's tensors.
    """
    if header.blobs.keys() != largest.keys():
        raise InvalidInput(field="blobs", value=sorted(header.blobs), allowed=str(sorted(largest)))
    if header.encoding != wanted:
        raise InvalidInput(field="encoding", value=str(header.encoding), rest=f"; this run uses {str(wanted)!r}")
    for role, limit in largest.items():
        if header.blobs[role].size > limit:
            raise ResourceExhausted(f"the update's {role} has {header.blobs[role].size} bytes; {limit} are allowed")
    require_whole("samples", header.samples, 1, MAX_SAMPLES)
    require_whole("steps", header.steps, 1, MAX_STEPS)
    check_metrics(header.metrics)


def largest_files(manifest: Manifest, wanted: Encoding) -> Mapping[str, int]:
    """Return the largest size of an update's files in bytes, by role."""
    roles = update_roles(manifest).items()
    return {role: largest_file(specs, wanted if role == MODEL else PLAIN) for role, specs in roles}


def check_files(files: Mapping[str, Path], manifest: Manifest) -> None:
    """Raise SchemaMismatch, naming role and tensor, unless all files match the manifest."""
    for role, specs in update_roles(manifest).items():
        _check_file(role, files[role], specs)


def _check_file(role: str, path: Path, specs: Sequence[TensorSpec]) -> None:
    try:
        check_model(path, specs)
        if role == CLASS_MEANS:
            _check_class_means(path, specs)
    except SchemaMismatch as error:
        raise SchemaMismatch(f"{role}: {error}") from error


def update_roles(manifest: Manifest) -> Roles:
    """Return the tensors of each role in an update."""
    return {MODEL: manifest.tensors, **manifest.uplink}


def check_model(path: Path, specs: Sequence[TensorSpec]) -> None:
    """Raise SchemaMismatch, naming the tensor, unless the file holds exactly these tensors with finite values."""
    check_layout(path, specs)
    if not all(np.isfinite(part).all() for part in read_slices(path, model_size(specs))):  # read: a map would be ours
        require_finite(open_model(path, specs), specs)


def _check_class_means(path: Path, specs: Sequence[TensorSpec]) -> None:
    """Check that the mask is one, and that nothing is shared about the classes that it leaves out."""
    tensors = split(open_model(path, specs), specs)
    mask = tensors[MASK]
    wrong = (mask != 0) & (mask != 1)
    if wrong.any():
        raise SchemaMismatch(f"tensor {MASK!r} holds {mask[wrong][0]}; it must hold 0 or 1", field="tensor", value=MASK)
    means = tensors[MEANS].reshape(mask.size, -1)[mask == 0]
    if means.any():
        raise SchemaMismatch(
            f"tensor {MEANS!r} holds {means[means != 0][0]} for a class whose {MASK!r} is 0; it must hold 0 there",
            field="tensor",
            value=MEANS,
        )


def check_metrics(metrics: Mapping[str, float]) -> None:
    """Reject metrics that are not finite numbers in range, or too many."""
    if len(metrics) > MAX_METRICS:
        raise InvalidInput(f"metrics has {len(metrics)} entries; at most {MAX_METRICS} are allowed")
    for name, value in metrics.items():
        if not 0 < len(name) <= MAX_METRIC_NAME or not name.isprintable():
            raise InvalidInput(f"the metric's name {name!r} must have 1 to {MAX_METRIC_NAME} printable characters")
        least, most = (0, MAX_SAMPLES) if name == HOLDOUT_SAMPLES else (-MAX_METRIC, MAX_METRIC)
        if not least <= value <= most:
            raise InvalidInput(f"metric {name!r} is {value}; it must be a number from {least:g} to {most:g}")
