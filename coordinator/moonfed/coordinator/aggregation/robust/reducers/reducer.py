"""The interface of a reducer.

A reducer never sees whole models: memory grows neither with the model nor with the fleet. It is one of two kinds.
A `CoordinatewiseReducer` is called with a slice of all models; a `WeightingReducer` gives every device a weight, from
the inner products of the devices' changes, which one pass over the updates gathers.
Legend: N devices, S elements of a slice, D elements of a vector.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import ClassVar

import numpy as np

from moonfed.coordinator.aggregation.robust.outliers import Outlier, far_outliers
from moonfed.coordinator.aggregation.shapes import read_only, require_shape
from moonfed.errors import InvalidInput
from moonfed.server_rules.server_rule import Float64Array
from moonfed.validate import require_whole

MAX_BYZANTINE = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Reducer(ABC):
    """A reducer and its settings; a subclass is a frozen dataclass that adds settings."""

    name: ClassVar[str]  # in the registry, on command lines and in recipes
    ignores_weights: ClassVar[bool] = True  # all devices count the same, so a weight cap is rejected

    @property
    def updates_needed(self) -> int:
        """The minimum number of updates for the reducer's guarantee."""
        return 1

    @property
    def finding(self) -> str:
        """The reducer's finding about some devices' updates, as a predicate: `its means of class x …`."""
        return f"are far from the {self.name.replace('_', ' ')}"

    def describe(self, outlier: Outlier) -> str:
        """Return the finding about one device's update, with its figure: `its parameters …`."""
        return f"are {outlier.figure:.4g} away from the {self.name.replace('_', ' ')}"

    @abstractmethod
    def reduce_vectors(self, vectors_ND: Float64Array) -> tuple[Float64Array, Sequence[Outlier]]:
        """Return the reduction of vectors that fit in memory, [D], and the outliers among them."""

    @property
    def requirement(self) -> str:
        """State the number of updates that the reducer needs, in words."""
        changed = {item.name: value for item, value in zip(fields(self), asdict(self).values(), strict=True)
                   if value != item.default}  # fmt: skip
        settings = ", ".join(f"{name}={value}" for name, value in changed.items())
        return f"reducer {self.name!r} needs {self.updates_needed}" + (f" with {settings}" if settings else "")

    def require_enough(self, updates: int) -> None:
        """Raise InvalidInput if a round has too few updates."""
        if updates < self.updates_needed:
            raise InvalidInput(f"the round has {updates} updates; {self.requirement}", field="updates", value=updates)


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatewiseReducer(Reducer):
    """A reducer that processes each coordinate separately. Devices far from its result are reported."""

    @abstractmethod
    def reduce(self, models_NS: Float64Array) -> Float64Array:
        """Return the reduction, [S], in place of the mean."""

    def reduce_vectors(self, vectors_ND: Float64Array) -> tuple[Float64Array, Sequence[Outlier]]:
        """Return the reduced vector, [D], and those far from it."""
        result = self.reduce(vectors_ND)
        return result, far_outliers(np.sqrt(np.square(vectors_ND - result).sum(axis=1)))


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightingReducer(Reducer):
    """A reducer that is a weighted mean, whose weights follow from the devices' changes relative to each other."""

    @abstractmethod
    def weigh(self, gram_NN: Float64Array, weights_N: Float64Array) -> tuple[Float64Array, Sequence[Outlier]]:
        """Return each device's weight, [N], and the outliers.

        Args:
            gram_NN: inner products of the devices' changes; the squared distance of two is G_ii + G_jj − 2·G_ij.
            weights_N: what each device weighs in the mean, after the weight cap; in any unit.

        Called once for the parameters and once for the statistics, if there are any. The result is divided by its sum.
        """

    def checked_weights(self, gram_NN: Float64Array, weights_N: Float64Array) -> tuple[Float64Array, Sequence[Outlier]]:
        """Call `weigh` with read-only arrays; InvalidInput unless it returns a weight for each device."""
        weights, outliers = self.weigh(read_only(gram_NN), read_only(weights_N))
        require_shape(f"reducer {self.name!r}", weights, weights_N.shape)
        return weights, outliers

    def reduce_vectors(self, vectors_ND: Float64Array) -> tuple[Float64Array, Sequence[Outlier]]:
        """Return the weighted mean, [D], and the outliers."""
        weights, outliers = self.checked_weights(vectors_ND @ vectors_ND.T, np.ones(len(vectors_ND)))
        return weights @ vectors_ND / weights.sum(), outliers


def require_byzantine(value: int) -> None:
    """Raise InvalidInput unless a setting can be a number of faulty or malicious devices."""
    require_whole("byzantine", value, 0, MAX_BYZANTINE)


def majority(byzantine: int) -> int:
    """Return the minimum number of updates for an honest majority."""
    return 2 * byzantine + 1
