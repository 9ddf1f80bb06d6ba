"""What the defence has against a device's update, and how the record puts it.

An offence is a fact, not a verdict: Multi-Krum always leaves devices out, and a device with unusual data is far from
the others. A weight cap is none: a device with much data has done nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from coordinator.aggregation.defence import Reducer
from coordinator.aggregation.slices import Slice

FAR = 3.0  # times as far from the reducer's result as the median device


@dataclass(frozen=True, slots=True, kw_only=True)
class Objection:
    """What a reducer has against one of some updates: a figure, and the same of the median update."""

    position: int
    figure: float
    median: float


def far_off(distances: Slice) -> list[Objection]:
    """Those that are much farther from a reducer's result than the median update."""
    median = float(np.median(distances))
    return [Objection(position=i, figure=d, median=median) for i, d in enumerate(distances) if d > FAR * median]


def clipped(what: str, norm: float, longest: float) -> str:
    """The sentence on a change that was too long."""
    return f"the change of its {what} was scaled down from norm {norm:.4g} to {longest:.4g}"


def objected(what: str, reducer: Reducer, objection: Objection) -> str:
    """The sentence on an update that a reducer had something against."""
    if reducer == "multi_krum":
        told = f"were left out by multi_krum, with a score of {objection.figure:.4g}"
    else:
        told = f"are {objection.figure:.4g} away from the {reducer.replace('_', ' ')}"
    return f"its {what} {told}, where the median device has {objection.median:.4g}"
