"""Incidents: robust aggregation's findings about devices' updates, in words; only the most severe are kept.

An incident is a fact, not a verdict: Multi-Krum always leaves devices out, and a device with unusual data is far from
the others. A weight cap is not an incident, nor is a clip of a change that is not unusually long: having much data is
not a fault.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from moonfed.coordinator.aggregation.robust.incident import Incident
from moonfed.coordinator.aggregation.robust.outliers import Outlier
from moonfed.coordinator.aggregation.robust.reducers.reducer import Reducer

MAX_INCIDENTS = 100  # of a round's models, and of its class means


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedIncident:
    """An incident and its severity: the ratio of its figure to the threshold."""

    incident: Incident
    severity: float


def most_severe(ranked: Sequence[RankedIncident]) -> tuple[Incident, ...]:
    """Return the most severe incidents, in order of the devices' names."""
    kept = sorted(ranked, key=lambda one: one.severity, reverse=True)[:MAX_INCIDENTS]
    return tuple(sorted((one.incident for one in kept), key=lambda incident: incident.device))


def clip_incident(device: str, part: str, norm: float, bound: float) -> RankedIncident:
    """Record that an update was clipped; `part` is `parameters` or `statistics`."""
    description = f"the change of its {part} was scaled down from norm {norm:.4g} to {bound:.4g}"
    incident = Incident(device=device, description=description, clipped=True)
    return RankedIncident(incident=incident, severity=_ratio(norm, bound))


def outlier_incident(device: str, part: str, reducer: Reducer, outlier: Outlier) -> RankedIncident:
    """Record that a reducer found an update to be an outlier."""
    description = (
        f"its {part} {reducer.describe(outlier)} (this figure's median over all updates: {outlier.median:.4g})"
    )
    severity = _ratio(outlier.figure, outlier.median)
    return RankedIncident(incident=Incident(device=device, description=description), severity=severity)


def _ratio(figure: float, usual: float) -> float:
    return figure / usual if usual > 0 else math.inf
