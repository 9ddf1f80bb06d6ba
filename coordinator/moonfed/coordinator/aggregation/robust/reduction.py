"""Reduction of a closed round's updates under robust aggregation, slice by slice.

Without robust settings this is the weighted mean; server rules see no difference.
Legend: N devices, S elements of a slice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from moonfed.blobs.schema import Kind
from moonfed.coordinator.aggregation.model_files import ElementIndex, indices_by_kind, ranges, weighted_sum
from moonfed.coordinator.aggregation.robust.incident import Incident
from moonfed.coordinator.aggregation.robust.incidents import RankedIncident, most_severe, outlier_incident
from moonfed.coordinator.aggregation.robust.model_changes import ModelChanges, PerKind
from moonfed.coordinator.aggregation.robust.outliers import far_outliers
from moonfed.coordinator.aggregation.robust.reducers.reducer import CoordinatewiseReducer, Reducer
from moonfed.coordinator.aggregation.shapes import read_only, require_shape
from moonfed.server_rules.server_rule import Float64Array

PARTS: Mapping[Kind, str] = {"parameter": "parameters", "statistic": "statistics"}
Indices = Sequence[tuple[Kind, ElementIndex]]  # the elements of a slice, by kind


@dataclass(slots=True, kw_only=True)
class RobustReduction:
    """The part of each update that counts: a_i·(w + s_i·(y_i − w)), where w is the round's initial model."""

    reducer: Reducer
    devices: Sequence[str]
    changes: ModelChanges
    weights: PerKind  # a, [N]; unused by coordinate-wise reducers
    scales: PerKind  # s, [N]
    moved: float  # the share of the weight that the updates have; the initial model has the rest
    slice_elements: int
    measured: Sequence[RankedIncident]  # before the reducer sees the first slice
    squares: dict[Kind, Float64Array] = field(default_factory=dict)  # of the distances from coordinate-wise results

    @property
    def ranges(self) -> Iterator[tuple[int, int]]:
        """Consecutive ranges that cover the model."""
        if isinstance(self.reducer, CoordinatewiseReducer):
            return self.changes.short_ranges(self.slice_elements)
        return ranges(self.changes.size, self.slice_elements)

    def reduce(self, start: int, stop: int) -> Float64Array:
        """Return the reduction of the models, [S], in place of their weighted mean."""
        indices = list(indices_by_kind(self.changes.specs, start, stop))
        if isinstance(self.reducer, CoordinatewiseReducer):
            reduced = self._reduce_by_coordinates(self.reducer, indices, start, stop)
        else:
            reduced = self._weighted_mean(indices, start, stop)
        if self.moved == 1.0:
            return reduced
        w = self.changes.global_slice(start, stop)
        return w + self.moved * (reduced - w)

    def incidents(self) -> tuple[Incident, ...]:
        """Return the most severe incidents; complete once `reduce` has seen all ranges once."""
        far = [
            outlier_incident(self.devices[outlier.position], PARTS[kind], self.reducer, outlier)
            for kind, squares in self.squares.items()
            for outlier in far_outliers(np.sqrt(squares))
        ]
        return most_severe([*self.measured, *far])

    def _weighted_mean(self, indices: Indices, start: int, stop: int) -> Float64Array:
        """(Σ a_i·s_i·y_i + Σ a_i·(1 − s_i)·w) / Σ a_i, which is the weighted mean of the clipped models."""
        a = self.weights
        s = self.scales
        length = stop - start
        of_models = (
            _spread({kind: a[kind][i] * s[kind][i] for kind, _ in indices}, indices, length)
            for i in range(len(self.devices))
        )
        sums = weighted_sum(self.changes.models, of_models, self.changes.size, start, stop)
        if any((s[kind] != 1.0).any() for kind, _ in indices):
            left = _spread({kind: float(a[kind] @ (1 - s[kind])) for kind, _ in indices}, indices, length)
            sums += left * self.changes.global_slice(start, stop)
        return sums / _spread({kind: float(a[kind].sum()) for kind, _ in indices}, indices, length)

    def _reduce_by_coordinates(
        self, reducer: CoordinatewiseReducer, indices: Indices, start: int, stop: int
    ) -> Float64Array:
        models = self.changes.clipped(self.scales, start, stop)
        result = reducer.reduce(read_only(models))
        require_shape(f"reducer {reducer.name!r}", result, models.shape[1:])
        models -= result
        for kind, where in indices:
            part = models[:, where]
            self.squares[kind] = self.squares.get(kind, 0.0) + np.einsum("ns,ns->n", part, part)
        return result


def _spread(values: Mapping[Kind, float], indices: Indices, length: int) -> float | Float64Array:
    """Return one value for all elements of a slice, or if it depends on the kind, one for each."""
    if len(set(values.values())) == 1:
        return values[indices[0][0]]
    spread = np.empty(length)
    for kind, where in indices:
        spread[where] = values[kind]
    return spread
