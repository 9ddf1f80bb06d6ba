"""The changes that a round's devices made, slice by slice: lengths, inner products, and models after the norm clip.

A change is a device's model minus the one that the round started from. Parameters and statistics are measured
separately: they have different units, and neither must hide the other. Memory is bounded by the slice: more devices
mean shorter slices. Legend: N devices, S elements of a slice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from moonfed.blobs.schema import Kind
from moonfed.blobs.tensors import TensorSpec, model_size
from moonfed.coordinator.aggregation.model_files import indices_by_kind, ranges, read_elements
from moonfed.server_rules.server_rule import Float64Array

PerKind = Mapping[Kind, Float64Array]  # for parameters and statistics, whichever the model has


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelChanges:
    """The files of a round's models, and of the global model that they started from."""

    global_model: Path
    models: Sequence[Path]
    specs: Sequence[TensorSpec]

    @property
    def size(self) -> int:
        """Elements of a model."""
        return model_size(self.specs)

    def short_ranges(self, slice_elements: int) -> Iterator[tuple[int, int]]:
        """Yield ranges so short that a block of all devices has about `slice_elements` elements."""
        return ranges(self.size, max(1, slice_elements // len(self.models)))

    def global_slice(self, start: int, stop: int) -> Float64Array:
        """Read elements of the model that the round started from, [S]."""
        return read_elements(self.global_model, self.size, start, stop).astype(np.float64)

    def block(self, start: int, stop: int) -> Float64Array:
        """Read the changes of all devices, [N, S]."""
        changes, w = np.empty((len(self.models), stop - start)), self.global_slice(start, stop)
        for change, path in zip(changes, self.models, strict=True):
            np.subtract(read_elements(path, self.size, start, stop), w, out=change)
        return changes

    def one_by_one(self, start: int, stop: int) -> Iterator[Float64Array]:
        """Yield the change of each device, [S], in a buffer that the next one overwrites."""
        size, w, change = self.size, self.global_slice(start, stop), np.empty(stop - start)
        for path in self.models:
            yield np.subtract(read_elements(path, size, start, stop), w, out=change)

    def squared_norms(self, slice_elements: int) -> PerKind:
        """Return the squared L2 norm of each device's change, [N]; no bit of it depends on the other devices."""
        squares: dict[Kind, Float64Array] = {spec.kind: np.zeros(len(self.models)) for spec in self.specs}
        for start, stop in ranges(self.size, slice_elements):
            indices = list(indices_by_kind(self.specs, start, stop))
            for device, change in enumerate(self.one_by_one(start, stop)):
                for kind, where in indices:
                    part = change[where]
                    squares[kind][device] += np.einsum("s,s->", part, part)
        return squares

    def grams(self, slice_elements: int) -> PerKind:
        """Return the inner products of the devices' changes, [N, N]; the diagonal has the squared norms."""
        grams: dict[Kind, Float64Array] = {}
        for start, stop in self.short_ranges(slice_elements):
            changes = self.block(start, stop)
            for kind, where in indices_by_kind(self.specs, start, stop):
                part = changes[:, where]
                grams[kind] = grams.get(kind, 0.0) + part @ part.T
        return grams

    def clipped(self, scales: PerKind, start: int, stop: int) -> Float64Array:
        """Read the devices' models with their changes scaled, [N, S]; as they are where the scale is 1."""
        w, models = self.global_slice(start, stop), np.empty((len(self.models), stop - start))
        for model, path in zip(models, self.models, strict=True):
            model[:] = read_elements(path, self.size, start, stop)
        for kind, where in indices_by_kind(self.specs, start, stop):
            for device in np.flatnonzero(scales[kind] != 1.0):
                models[device, where] = w[where] + scales[kind][device] * (models[device, where] - w[where])
        return models
