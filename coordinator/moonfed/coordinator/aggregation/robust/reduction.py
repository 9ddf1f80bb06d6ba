"""A closed round's updates as robust aggregation lets them count, reduced slice by slice.

What the mean is without a robust, `RobustReduction.reduce` is with one: server rules see no difference.
Legend: N devices, S elements of a slice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from moonfed.coordinator.aggregation.model_files import Index, Slice, kinds, ranges, weighted_sum
from moonfed.coordinator.aggregation.robust.config import RobustSettings
from moonfed.coordinator.aggregation.robust.coordinatewise import trimmed
from moonfed.coordinator.aggregation.robust.incident_record import Incident
from moonfed.coordinator.aggregation.robust.incidents import Noted, far_off, gravest, objected
from moonfed.coordinator.aggregation.robust.update_norms import Changes, PerKind
from moonfed.coordinator.aggregation.robust.weighted_reducers import BY_COORDINATES
from moonfed.schema import Kind

NAMES: Mapping[Kind, str] = {"parameter": "parameters", "statistic": "statistics"}
Found = Sequence[tuple[Kind, Index]]  # which elements of a slice are of each kind


@dataclass(slots=True, kw_only=True)
class RobustReduction:
    """How much of each update counts: a_i·(w + s_i·(y_i − w)), w being what the round began with."""

    robust: RobustSettings
    devices: Sequence[str]
    changes: Changes
    weights: PerKind  # a, [N]; unused by reducers that go by coordinates
    scales: PerKind  # s, [N]
    slice_elements: int
    noted: Sequence[Noted]  # before the reducer sees the first slice
    squares: dict[Kind, Slice] = field(default_factory=dict)  # of the distances from the result, by coordinates

    @property
    def ranges(self) -> Iterator[tuple[int, int]]:
        """Consecutive ranges that cover the model."""
        if self.robust.reducer in BY_COORDINATES:
            return self.changes.short_ranges(self.slice_elements)
        return ranges(self.changes.size, self.slice_elements)

    def reduce(self, start: int, stop: int) -> Slice:
        """What takes the place of the models' weighted mean."""
        found = list(kinds(self.changes.specs, start, stop))
        if self.robust.reducer in BY_COORDINATES:
            return self._by_coordinates(found, start, stop)
        return self._mean(found, start, stop)

    def incidents(self) -> tuple[Incident, ...]:
        """The gravest of what robust aggregation did; complete once `reduce` has seen all ranges once."""
        far = [
            objected(self.devices[one.position], NAMES[kind], self.robust.reducer, one)
            for kind, squares in self.squares.items()
            for one in far_off(np.sqrt(squares))
        ]
        return gravest([*self.noted, *far])

    def _mean(self, found: Found, start: int, stop: int) -> Slice:
        """(Σ a_i·s_i·y_i + Σ a_i·(1 − s_i)·w) / Σ a_i, which is the weighted mean of the clipped models."""
        a, s, length = self.weights, self.scales, stop - start
        of_models = (
            _spread({kind: a[kind][i] * s[kind][i] for kind, _ in found}, found, length)
            for i in range(len(self.devices))
        )
        sums = weighted_sum(self.changes.models, of_models, self.changes.size, start, stop)
        if any((s[kind] != 1.0).any() for kind, _ in found):
            left = _spread({kind: float(a[kind] @ (1 - s[kind])) for kind, _ in found}, found, length)
            sums += left * self.changes.global_slice(start, stop)
        return sums / _spread({kind: float(a[kind].sum()) for kind, _ in found}, found, length)

    def _by_coordinates(self, found: Found, start: int, stop: int) -> Slice:
        models = self.changes.clipped(self.scales, start, stop)
        result = trimmed(self.robust, models)
        models -= result
        for kind, where in found:
            part = models[:, where]
            self.squares[kind] = self.squares.get(kind, 0.0) + np.einsum("ns,ns->n", part, part)
        return result


def _spread(values: Mapping[Kind, float], found: Found, length: int) -> float | Slice:
    """One value for all elements of a slice, or if it depends on the kind, one for each."""
    if len(set(values.values())) == 1:
        return values[found[0][0]]
    spread = np.empty(length)
    for kind, where in found:
        spread[where] = values[kind]
    return spread
