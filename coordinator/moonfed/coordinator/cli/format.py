"""Formatting of single values of runs, rounds and events."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone

from moonfed.control.runs import Run
from moonfed.formatting import count, measured


def snapshot_line(run: Run) -> str:
    """Format a run in one line."""
    why, rounds = run.reason or run.waiting, count(run.rounds, "round")
    line = f"run {run.run} ({run.method}): {run.status}, {run.round} of {rounds}"
    return f"{line}; {why}" if why else line


def moment(time: datetime | None) -> str:
    """Format a point in time; `-` if there is none."""
    return f"{time:%Y-%m-%d %H:%M:%S} UTC" if time else "-"


def ago(time: datetime) -> str:
    """Format how long ago a point in time is."""
    return duration(max(0.0, (datetime.now(timezone.utc) - time).total_seconds()))


def duration(seconds: float) -> str:
    """Format a duration with its largest unit, such as `12 s`, `5 min`, `3 h` or `20 d`."""
    for unit, length, most in (("s", 1, 90), ("min", 60, 90), ("h", 3600, 48)):
        if seconds < most * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds / 86400:,.0f} d"


def metric(name: str, value: float, unit: str = "") -> str:
    """Format the value of a metric."""
    return f"{value:.0f}" if name.endswith("_samples") else measured(value, unit)


def metrics_text(metrics: Mapping[str, float]) -> str:
    """Format metrics with their names, sorted."""
    return ", ".join(f"{name} {metric(name, value)}" for name, value in sorted(metrics.items()))
