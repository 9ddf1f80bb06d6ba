"""Formatting of a run's robust settings and incidents."""

from __future__ import annotations

from collections.abc import Sequence

from moonfed.v1 import control_pb2


def robust_line(robust: control_pb2.RobustSettings) -> str:
    """Format robust settings in one line."""
    parts = [f"weight cap {100 * robust.weight_cap:g}%"] if robust.weight_cap else []
    parts += [f"clip norm {robust.clip_norm:g}"] if robust.clip_norm else []
    parts += [f"clip factor {robust.clip_factor:g}"] if robust.clip_factor else []
    parts += [f"from {robust.bounds_from} updates in a round"] if robust.bounds_from > 1 else []
    parts += [f"reducer {robust.reducer}"]
    parts += [f"{key} {value}" for key, value in sorted(robust.reducer_settings.items())]
    return f"robust aggregation: {', '.join(parts)}"


def incident_lines(rounds: Sequence[control_pb2.Round]) -> list[str]:
    """Format rounds' incidents, one per line."""
    return [
        f"round {round_.round}, {incident.device}: {incident.description}"
        for round_ in rounds
        for incident in round_.incidents
    ]
