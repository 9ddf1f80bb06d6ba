"""What robust aggregation has against a device's update, and how the record puts it.

An incident is a fact, not a verdict: Multi-Krum always leaves devices out, and a device with unusual data is far from
the others. A weight cap is none: a device with much data has done nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from moonfed.coordinator.aggregation.model_files import Slice
from moonfed.coordinator.aggregation.robust.config import Reducer
from moonfed.coordinator.aggregation.robust.incident_record import Incident

FAR = 3.0  # times as far from the reducer's result as the median device
MOST = 100  # incidents kept of a round's models, and of its class means: a tight clip names half of a large cohort


@dataclass(frozen=True, slots=True, kw_only=True)
class Noted:
    """An incident, and how grave it is: how many times the figure that would have been none."""

    incident: Incident
    gravity: float


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


def gravest(noted: Sequence[Noted]) -> tuple[Incident, ...]:
    """The gravest incidents, in order of the devices' names."""
    kept = sorted(noted, key=lambda one: one.gravity, reverse=True)[:MOST]
    return tuple(sorted((one.incident for one in kept), key=lambda incident: incident.device))


def clipped(device: str, what: str, norm: float, longest: float) -> Noted:
    """That a device's change was too long."""
    told = f"the change of its {what} was scaled down from norm {norm:.4g} to {longest:.4g}"
    return Noted(incident=Incident(device=device, description=told), gravity=_ratio(norm, longest))


def objected(device: str, what: str, reducer: Reducer, objection: Objection) -> Noted:
    """That a reducer had something against a device's update."""
    if reducer == "multi_krum":
        told = f"were left out by multi_krum, with a score of {objection.figure:.4g}"
    else:
        told = f"are {objection.figure:.4g} away from the {reducer.replace('_', ' ')}"
    told = f"its {what} {told}, where the median device has {objection.median:.4g}"
    return Noted(incident=Incident(device=device, description=told), gravity=_ratio(objection.figure, objection.median))


def _ratio(figure: float, usual: float) -> float:
    return figure / usual if usual > 0 else math.inf
