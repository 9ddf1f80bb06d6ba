"""Formatting of single values of runs, rounds and events."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone

from moonfed.formatting import count
from moonfed.v1 import control_pb2


def snapshot_line(run: control_pb2.Run) -> str:
    """Format a run in one line."""
    why, rounds = run.reason or run.waiting, count(run.settings.rounds, "round")
    line = f"run {run.run} ({run.method}): {run_status(run)}, {run.round} of {rounds}"
    return f"{line}; {why}" if why else line


def moment(seconds: float) -> str:
    """Format a point in time; `-` if it is 0."""
    return f"{datetime.fromtimestamp(seconds, timezone.utc):%Y-%m-%d %H:%M:%S} UTC" if seconds else "-"


def duration(seconds: float) -> str:
    """Format a duration with its largest unit, such as `12 s`, `5 min`, `3 h` or `20 d`."""
    for unit, length, most in (("s", 1, 90), ("min", 60, 90), ("h", 3600, 48)):
        if seconds < most * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds / 86400:,.0f} d"


def run_status(run: control_pb2.Run) -> str:
    """Return a run's status as one word."""
    return control_pb2.RunStatus.Name(run.status).removeprefix("RUN_STATUS_").lower()


def round_status(round_: control_pb2.Round) -> str:
    """Return a round's status as one word."""
    return control_pb2.RoundStatus.Name(round_.status).removeprefix("ROUND_STATUS_").lower()


def event_name(event: control_pb2.RunEvent) -> str:
    """Return an event's kind as one word."""
    return control_pb2.EventKind.Name(event.kind).removeprefix("EVENT_KIND_").lower()


def amount_text(amount: control_pb2.Amount) -> str:
    """Return an amount as the command line takes it."""
    return str(amount.count) if amount.WhichOneof("amount") == "count" else f"{100 * amount.fraction:g}%"


def metric(name: str, value: float) -> str:
    """Format the value of a metric."""
    return f"{value:.0f}" if name.endswith("_samples") else f"{value:.4f}"


def metrics_text(metrics: Mapping[str, float]) -> str:
    """Format metrics with their names, sorted."""
    return ", ".join(f"{name} {metric(name, value)}" for name, value in sorted(metrics.items()))
