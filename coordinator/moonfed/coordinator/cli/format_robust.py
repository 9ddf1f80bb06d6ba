"""Formatting of a run's robust settings and incidents, as text and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from moonfed.v1 import control_pb2


def robust_document(robust: control_pb2.RobustSettings) -> dict[str, Any]:
    """Return robust settings as JSON values; 0 where nothing was chosen."""
    return {
        "weight_cap": robust.weight_cap,
        "clip_norm": robust.clip_norm,
        "clip_factor": robust.clip_factor,
        "bounds_from": robust.bounds_from or 1,
        "reducer": robust.reducer,
        "reducer_settings": dict(robust.reducer_settings),
    }


def robust_line(robust: control_pb2.RobustSettings) -> str:
    """Format robust settings in one line."""
    parts = [f"weight cap {100 * robust.weight_cap:g}%"] if robust.weight_cap else []
    parts += [f"clip norm {robust.clip_norm:g}"] if robust.clip_norm else []
    parts += [f"clip factor {robust.clip_factor:g}"] if robust.clip_factor else []
    parts += [f"from {robust.bounds_from} updates in a round"] if robust.bounds_from > 1 else []
    parts += [f"reducer {robust.reducer}"]
    parts += [f"{key} {value}" for key, value in sorted(robust.reducer_settings.items())]
    return f"robust aggregation: {', '.join(parts)}"


def incidents_document(round_: control_pb2.Round) -> list[dict[str, str]]:
    """Return a round's incidents as JSON values."""
    return [{"device": incident.device, "description": incident.description} for incident in round_.incidents]


def incident_lines(rounds: Sequence[control_pb2.Round]) -> list[str]:
    """Format rounds' incidents, one per line."""
    return [
        f"round {round_.round}, {incident.device}: {incident.description}"
        for round_ in rounds
        for incident in round_.incidents
    ]
