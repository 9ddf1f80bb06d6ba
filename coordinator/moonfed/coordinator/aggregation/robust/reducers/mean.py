"""The weighted mean, which a single device can move as far as the norm clip allows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from moonfed.coordinator.aggregation.robust.outliers import Outlier
from moonfed.coordinator.aggregation.robust.reducers.reducer import Reducer
from moonfed.server_rules.server_rule import Float64Array


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanReducer(Reducer):
    """The weighted mean: not robust on its own."""

    name: ClassVar[str] = "mean"
    ignores_weights: ClassVar[bool] = False

    def reduce_vectors(self, vectors_ND: Float64Array) -> tuple[Float64Array, Sequence[Outlier]]:
        """Return the mean, [D]."""
        return vectors_ND.sum(axis=0) / len(vectors_ND), ()
