"""Coordinate-wise median. Yin et al., ICML 2018, definition 1.

All devices count the same, as in the paper: its proof counts devices, and a device's samples are its own claim.
Legend: N devices, S coordinates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from moonfed.coordinator.aggregation.robust.reducers.reducer import CoordinatewiseReducer, majority, require_byzantine
from moonfed.coordinator.aggregation.robust.reducers.trimmed_mean import trim
from moonfed.server_rules.server_rule import Float64Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Median(CoordinatewiseReducer):
    """The middle value of each coordinate. Yin et al., ICML 2018."""

    name: ClassVar[str] = "median"
    byzantine: int = 0  # faulty or malicious devices of a round; decides only how many updates a round needs

    def __post_init__(self) -> None:
        require_byzantine(self.byzantine)

    @property
    def updates_needed(self) -> int:
        """A majority of honest devices."""
        return majority(self.byzantine)

    def reduce(self, models_NS: Float64Array) -> Float64Array:
        """Return the median, [S]."""
        return trim(models_NS, (len(models_NS) - 1) // 2)
