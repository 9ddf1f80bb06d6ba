"""Formatting of a run's incidents."""

from __future__ import annotations

from collections.abc import Sequence

from moonfed.control.runs import Round, Run
from moonfed.coordinator.cli.layout import listed, shorten

NAMED = 3  # devices, within a screen


def clipped_lines(run: Run, width: int | None = None) -> list[str]:
    """Name the devices that were clipped in several rounds in a row, those with the most first."""
    worst = sorted(run.clipped.items(), key=lambda item: (-item[1], item[0]))
    if not worst:
        return []
    named = [f"{device} ({number:,})" for device, number in worst]
    line = f"clipped in their last rounds: {listed(named, NAMED) if width else ', '.join(named)}"
    return [shorten(line, width) if width else line]


def incident_lines(rounds: Sequence[Round]) -> list[str]:
    """Format rounds' incidents, one per line."""
    return [
        f"round {round_.round}, {incident.device}: {incident.description}"
        for round_ in rounds
        for incident in round_.incidents
    ]
