"""From a round's updates to the next global model: one pass over slices, in a fixed order, in constant memory.

Updates are read from their spooled files a slice at a time, so memory grows neither with the fleet nor with the model,
and the order of the contributions, not of their arrival, decides how float64 sums round.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from moonfed.tensors import ITEM_SIZE, TensorSpec, Vector, model_size

SLICE = 1 << 20  # elements


@dataclass(frozen=True, slots=True, kw_only=True)
class Contribution:
    """One device's checked update: a safetensors file, and the samples that it was trained on."""

    path: Path
    samples: int


def weighted_mean(
    contributions: Sequence[Contribution], specs: Sequence[TensorSpec], *, slice_elements: int = SLICE
) -> Iterator[Vector]:
    """The mean of the updates weighted by their samples, as consecutive float32 slices of the flat model.

    Parameters and statistics alike; sums are float64. FedAvg: McMahan et al. 2017, algorithm 1.
    """
    size, total = model_size(specs), sum(contribution.samples for contribution in contributions)
    for start in range(0, size, slice_elements):
        stop = min(start + slice_elements, size)
        sums, scaled = np.zeros(stop - start, np.float64), np.empty(stop - start, np.float64)
        for contribution in contributions:
            piece = _read(contribution.path, size, start, stop)
            np.multiply(piece, contribution.samples, out=scaled, dtype=np.float64)
            sums += scaled
        yield (sums / total).astype(np.float32)


def _read(path: Path, size: int, start: int, stop: int) -> Vector:
    """Elements start to stop of a checked file, whose buffer is its end. Mapped anew, so nothing stays resident."""
    buffer = path.stat().st_size - ITEM_SIZE * size
    return np.memmap(path, dtype="<f4", mode="r", offset=buffer + ITEM_SIZE * start, shape=(stop - start,))
