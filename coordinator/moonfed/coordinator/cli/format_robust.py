"""Formatting of a run's robust settings and incidents."""

from __future__ import annotations

from collections.abc import Sequence

from moonfed.coordinator.cli.layout import listed, shorten
from moonfed.formatting import number_text
from moonfed.v1 import control_pb2

NAMED = 3  # devices, within a screen


def robust_line(robust: control_pb2.RobustSettings) -> str:
    """Format robust settings in one line."""
    parts = [f"weight cap {number_text(robust.weight_cap)}/N"] if robust.weight_cap else []
    parts += [f"clip norm {number_text(robust.clip_norm)}"] if robust.clip_norm else []
    parts += [f"clip factor {number_text(robust.clip_factor)}"] if robust.clip_factor else []
    parts += [f"reducer {robust.reducer}"]
    parts += [f"{key} {value}" for key, value in sorted(robust.reducer_settings.items())]
    return f"robust aggregation: {', '.join(parts)}"


def clipped_lines(run: control_pb2.Run, width: int | None = None) -> list[str]:
    """Name the devices that were clipped in several rounds in a row, those with the most first."""
    worst = sorted(run.clipped.items(), key=lambda item: (-item[1], item[0]))
    if not worst:
        return []
    named = [f"{device} ({number:,})" for device, number in worst]
    line = f"clipped in their last rounds: {listed(named, NAMED) if width else ', '.join(named)}"
    return [shorten(line, width) if width else line]


def incident_lines(rounds: Sequence[control_pb2.Round]) -> list[str]:
    """Format rounds' incidents, one per line."""
    return [
        f"round {round_.round}, {incident.device}: {incident.description}"
        for round_ in rounds
        for incident in round_.incidents
    ]
