"""Checks of a submitted update, all of them before any arithmetic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from coordinator.records import AttemptId
from moonfed.blobs import BlobRef
from moonfed.errors import InvalidInput, ResourceExhausted
from moonfed.tensors import TensorSpec, file_size, open_model, require_finite

MODEL_ROLE = "model"
ROLES = (MODEL_ROLE,)  # what a device may hand in under the rule "mean"
MAX_SAMPLES = 10_000_000  # of one device in one round; more is a mistake, or an attempt to outweigh everybody
MAX_STEPS = 1_000_000_000
MAX_METRICS, MAX_METRIC_NAME = 64, 64
MAX_METRIC = 1e12  # far from where a weighted sum of a whole fleet's would overflow
HOLDOUT_SAMPLES = "holdout_samples"  # the metric that the other held-out ones are weighted by
HEADER_ALLOWANCE = 1 << 16  # bytes: other writers' white space and metadata


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateHeader:
    """What a device says of its update before it sends the bytes."""

    id: AttemptId
    device: str
    blobs: Mapping[str, BlobRef]  # by role
    samples: int
    steps: int
    metrics: Mapping[str, float]

    @property
    def model(self) -> BlobRef:
        """The device's weights after local training."""
        return self.blobs[MODEL_ROLE]


def check_header(header: UpdateHeader, specs: Sequence[TensorSpec]) -> None:
    """Refuses what can be refused before a byte was sent.

    Raises InvalidInput for roles that nobody asked for and for senseless numbers, ResourceExhausted for a model that
    is larger than any file of these tensors.
    """
    if sorted(header.blobs) != sorted(ROLES):
        raise InvalidInput(f"blobs is {sorted(header.blobs)}; it must be {sorted(ROLES)}")
    limit = file_size(specs) + HEADER_ALLOWANCE
    if header.model.size > limit:
        raise ResourceExhausted(f"the update's model has {header.model.size} bytes; {limit} are allowed")
    _check_range("samples", header.samples, MAX_SAMPLES)
    _check_range("steps", header.steps, MAX_STEPS)
    check_metrics(header.metrics)


def check_model(path: Path, specs: Sequence[TensorSpec]) -> None:
    """Raises SchemaMismatch, naming the tensor, unless the file holds exactly these tensors with finite values."""
    require_finite(open_model(path, specs), specs)


def check_metrics(metrics: Mapping[str, float]) -> None:
    """Refuses metrics that are no usable numbers, or too many."""
    if len(metrics) > MAX_METRICS:
        raise InvalidInput(f"metrics has {len(metrics)} entries; at most {MAX_METRICS} are allowed")
    for name, value in metrics.items():
        if not 0 < len(name) <= MAX_METRIC_NAME or not name.isprintable():
            raise InvalidInput(f"the metric's name {name!r} must have 1 to {MAX_METRIC_NAME} printable characters")
        least, most = (0, MAX_SAMPLES) if name == HOLDOUT_SAMPLES else (-MAX_METRIC, MAX_METRIC)
        if not least <= value <= most:
            raise InvalidInput(f"metric {name!r} is {value}; it must be a number from {least:g} to {most:g}")


def _check_range(name: str, value: int, limit: int) -> None:
    if not 1 <= value <= limit:
        raise InvalidInput(f"{name} is {value}; it must be a whole number from 1 to {limit}")
