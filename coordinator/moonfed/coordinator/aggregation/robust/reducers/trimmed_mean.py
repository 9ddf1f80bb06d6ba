"""Coordinate-wise trimmed mean. Yin et al., ICML 2018, definition 2.

In every coordinate the f smallest and the f largest values are dropped, and the rest is averaged. All devices count
the same, as in the paper: its proof counts devices, and a device's samples are its own claim.
Legend: N devices, S coordinates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from moonfed.coordinator.aggregation.robust.reducers.reducer import CoordinatewiseReducer, majority, require_byzantine
from moonfed.errors import InvalidInput
from moonfed.server_rules.server_rule import Float64Array


@dataclass(frozen=True, slots=True, kw_only=True)
class TrimmedMean(CoordinatewiseReducer):
    """Each coordinate's mean without its f largest and f smallest values. Yin et al., ICML 2018."""

    name: ClassVar[str] = "trimmed_mean"
    byzantine: int = 0  # f
    share: float = 0.0  # or f as a share of the round's devices, rounded down

    def __post_init__(self) -> None:
        require_byzantine(self.byzantine)
        if not 0 <= self.share < 0.5:
            raise InvalidInput(field="share", value=self.share, allowed="a number from 0, below 0.5")
        if bool(self.byzantine) == bool(self.share):
            raise InvalidInput(
                f"byzantine is {self.byzantine} and share is {self.share:g} with reducer 'trimmed_mean'; exactly one "
                "of them must say how many values to leave out at either end"
            )

    @property
    def updates_needed(self) -> int:
        """A majority of honest devices, and enough to drop at least one value at either end."""
        return math.ceil(round(1 / self.share, 9)) if self.share else majority(self.byzantine)

    def reduce(self, models_NS: Float64Array) -> Float64Array:
        """Return the trimmed mean, [S]."""
        return trim(models_NS, self.byzantine or math.floor(round(self.share * len(models_NS), 9)))


def trim(models_NS: Float64Array, f: int) -> Float64Array:
    """Return the mean of all but the f smallest and the f largest values of each coordinate, [S]."""
    middle: Float64Array = np.sort(models_NS, axis=0)[f : len(models_NS) - f].mean(axis=0)
    return middle
