"""Formatting of runs, events and devices, as text and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from moonfed.coordinator.cli.format_robust import incident_lines, incidents_document, robust_document, robust_line
from moonfed.encodings import PLAIN
from moonfed.labels import write_labels
from moonfed.v1 import blob_pb2, control_pb2


def run_document(run: control_pb2.Run) -> dict[str, Any]:
    """Return a run as JSON values."""
    return {
        "run": run.run,
        "status": run_status(run),
        "method": run.method,
        "round": run.round,
        "settings": _settings_document(run.settings),
        "manifest": _blob_document(run.manifest),
        "model": _blob_document(run.model),
        "waiting": run.waiting,
        "created": run.created,
        "initial_metrics": dict(run.initial_metrics),
        "open_round": _open_round_document(run.open_round) if run.HasField("open_round") else None,
    }


def round_document(round_: control_pb2.Round) -> dict[str, Any]:
    """Return a round as JSON values."""
    return {
        "round": round_.round,
        "attempt": round_.attempt,
        "status": _round_status(round_),
        "model": _blob_document(round_.model) if round_.HasField("model") else None,
        "counted": list(round_.counted),
        "missing": list(round_.missing),
        "reason": round_.reason,
        "metrics": dict(round_.metrics),
        "seconds": round_.seconds,
        "incidents": incidents_document(round_),
    }


def event_document(event: control_pb2.RunEvent) -> dict[str, Any]:
    """Return an event as JSON values, without empty fields."""
    fields: dict[str, Any] = {
        "round": event.round,
        "attempt": event.attempt,
        "device": event.device,
        "devices": list(event.devices),
        "reason": event.reason,
        "model": _blob_document(event.model) if event.HasField("model") else None,
        "metrics": dict(event.metrics),
        "fraction": event.fraction,
        "run": run_document(event.run) if event.HasField("run") else None,
    }
    return {"event": event_name(event)} | {name: value for name, value in fields.items() if value}


def device_document(device: control_pb2.Device) -> dict[str, Any]:
    """Return a device as JSON values."""
    return {
        "device": device.device,
        "online": device.online,
        "enrolled": device.enrolled,
        "last_seen": device.last_seen,
        "certificate_expires": device.certificate_expires,
        "platform": dict(device.platform),
        "labels": dict(device.labels),
    }


def run_lines(run: control_pb2.Run, rule: Mapping[str, Any] | None, rounds: Sequence[control_pb2.Round]) -> list[str]:
    """Format a run with its server rule and its rounds."""
    metrics = sorted({name for round_ in rounds for name in round_.metrics} | set(run.initial_metrics))
    rows = [_round_row(round_, metrics) for round_ in rounds]
    if run.initial_metrics:
        rows.insert(0, ["0", "", "start", "", "", *_metric_cells(run.initial_metrics, metrics), ""])
    lines = [snapshot_line(run), _settings_line(run.settings)]
    if rule:
        settings = ", ".join(f"{name} {value}" for name, value in rule.items() if name != "name")
        lines += [f"server rule {rule['name']}: {settings}"]
    if run.settings.HasField("robust"):
        lines += [robust_line(run.settings.robust)]
    if encodings := _encodings_line(run.settings):
        lines += [encodings]
    if rows:
        heads = ["round", "attempt", "status", "updates", "seconds", *metrics, "missing"]
        lines += ["", *table(heads, rows)]
    if incidents := incident_lines(rounds):
        lines += ["", *incidents]
    if run.HasField("open_round"):
        lines += ["", _open_round_line(run.open_round)]
    return lines


def _settings_line(settings: control_pb2.RunSettings) -> str:
    """Format the settings of cohorts and timeouts, without defaults that were not chosen."""
    parts = [f"cohort {_amount_text(settings.cohort)}", f"minimum devices {settings.minimum_devices}"]
    parts += [f"quorum {_amount_text(settings.quorum)}"]
    parts += [
        f"deadline {settings.deadline_seconds:g} s",
        f"heartbeat timeout {settings.heartbeat_timeout_seconds:g} s",
    ]
    parts += [f"over-selection {100 * settings.over_selection:g}%"] if settings.over_selection else []
    parts += [f"label {write_labels(settings.labels)}"] if settings.labels else []
    parts += ["sampling samples"] if settings.sampling == control_pb2.SAMPLING_SAMPLES else []
    if chosen := _asynchronous_document(settings):
        parts += [f"asynchronous {chosen['buffer']}", f"max staleness {chosen['max_staleness']}"]
    return f"settings: {', '.join(parts)}"


def _encodings_line(settings: control_pb2.RunSettings) -> str:
    """Format the encodings of models; empty if they are sent unencoded."""
    ways = {"up": settings.uplink_encoding, "down": settings.downlink_encoding}
    parts = [f"{encoding} {way}" for way, encoding in ways.items() if encoding not in ("", str(PLAIN))]
    return f"encodings: {', '.join(parts)}" if parts else ""


def snapshot_line(run: control_pb2.Run) -> str:
    """Format a run in one line."""
    waiting = f"; {run.waiting}" if run.waiting else ""
    return f"run {run.run} ({run.method}): {run_status(run)}, {run.round} of {run.settings.rounds} rounds{waiting}"


def event_line(event: control_pb2.RunEvent) -> str:
    """Format an event in one line."""
    kind, names = event_name(event), ", ".join(event.devices)
    attempt = f" (attempt {event.attempt})" if event.attempt > 1 else ""
    where = f"round {event.round}{attempt}"
    metrics = ", ".join(f"{name} {_metric(name, value)}" for name, value in sorted(event.metrics.items()))
    incidents = f"; {event.reason}" if event.reason else ""
    lines = {
        "snapshot": lambda: snapshot_line(event.run),
        "waiting": lambda: event.reason,
        "round_opened": lambda: f"{where} opened for {names or 'nobody, while all are at work with earlier models'}",
        "progress": lambda: f"{where}: {event.device} is at {100 * event.fraction:.0f}%",
        "update_received": lambda: f"{where}: {event.device} delivered its update; {_outstanding(names)}",
        "update_rejected": lambda: f"{where}: the update of {event.device} was rejected: {event.reason}",
        "device_declined": lambda: f"{where}: {event.device} declined: {event.reason}",
        "device_lost": lambda: f"{where}: {event.device} is lost",
        "round_committed": lambda: (
            f"{where} committed with {len(event.devices)} updates: {event.model.sha256[:12]}{incidents}"
        ),
        "round_abandoned": lambda: f"{where} abandoned: {event.reason}",
        "metrics": lambda: f"round {event.round}: {metrics or 'no metrics'}",
        "ended": lambda: snapshot_line(event.run),
    }
    return lines[kind]() if kind in lines else f"{where}: {kind}"


def _outstanding(names: str) -> str:
    return f"waiting for {names}" if names else "waiting for nobody"


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Format rows with columns as wide as their content."""
    widths = [max(len(row[column]) for row in (heads, *rows)) for column in range(len(heads))]
    padded = ([cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in (heads, *rows))
    return ["  ".join(row).rstrip() for row in padded]


def moment(seconds: float) -> str:
    """Format a point in time; empty if it is 0."""
    return f"{datetime.fromtimestamp(seconds, timezone.utc):%Y-%m-%d %H:%M:%S} UTC" if seconds else "-"


def run_status(run: control_pb2.Run) -> str:
    """Return a run's status as one word."""
    return control_pb2.RunStatus.Name(run.status).removeprefix("RUN_STATUS_").lower()


def event_name(event: control_pb2.RunEvent) -> str:
    """Return an event's kind as one word."""
    return control_pb2.EventKind.Name(event.kind).removeprefix("EVENT_KIND_").lower()


def _round_status(round_: control_pb2.Round) -> str:
    return control_pb2.RoundStatus.Name(round_.status).removeprefix("ROUND_STATUS_").lower()


def _round_row(round_: control_pb2.Round, metrics: Sequence[str]) -> list[str]:
    cohort = len(round_.counted) + len(round_.missing)
    cells = _metric_cells(round_.metrics, metrics)
    # An abandoned round counts no device; its reason names those that delivered nothing, and why.
    missing = round_.reason or ", ".join(round_.missing)
    return [
        str(round_.round),
        str(round_.attempt),
        _round_status(round_),
        f"{len(round_.counted)} of {cohort}",
        f"{round_.seconds:.1f}",
        *cells,
        missing,
    ]


def _metric_cells(values: Mapping[str, float], names: Sequence[str]) -> list[str]:
    return [_metric(name, values[name]) if name in values else "" for name in names]


def _metric(name: str, value: float) -> str:
    return f"{value:.0f}" if name.endswith("_samples") else f"{value:.4f}"


def _open_round_line(current: control_pb2.OpenRound) -> str:
    parts = [f"{len(current.reported)} of {len(current.cohort)} updates"]
    groups = {"rejected": current.rejected, "declined": current.declined, "lost": current.lost}
    parts += [f"{what}: {', '.join(names)}" for what, names in groups.items() if names]
    return f"round {current.round}, attempt {current.attempt} is open: {'; '.join(parts)}"


def _settings_document(settings: control_pb2.RunSettings) -> dict[str, Any]:
    return {
        "rounds": settings.rounds,
        "cohort": _amount_text(settings.cohort),
        "minimum_devices": settings.minimum_devices,
        "quorum": _amount_text(settings.quorum),
        "deadline_seconds": settings.deadline_seconds,
        "heartbeat_timeout_seconds": settings.heartbeat_timeout_seconds,
        "seed": settings.seed,
        "sampling": control_pb2.Sampling.Name(settings.sampling).removeprefix("SAMPLING_").lower(),
        "downlink_encoding": settings.downlink_encoding,
        "uplink_encoding": settings.uplink_encoding,
        "retention": {"last": settings.retention.last, "every": settings.retention.every},
        "over_selection": settings.over_selection,
        "labels": dict(settings.labels),
        "asynchronous": _asynchronous_document(settings),
        "robust": robust_document(settings.robust) if settings.HasField("robust") else None,
    }


def _asynchronous_document(settings: control_pb2.RunSettings) -> dict[str, int] | None:
    chosen = settings.asynchronous
    if not settings.HasField("asynchronous"):
        return None
    return {"buffer": chosen.buffer, "max_staleness": chosen.max_staleness}


def _amount_text(amount: control_pb2.Amount) -> str:
    return str(amount.count) if amount.WhichOneof("amount") == "count" else f"{100 * amount.fraction:g}%"


def _open_round_document(current: control_pb2.OpenRound) -> dict[str, Any]:
    return {
        "round": current.round,
        "attempt": current.attempt,
        "cohort": list(current.cohort),
        "reported": list(current.reported),
        "rejected": list(current.rejected),
        "declined": list(current.declined),
        "lost": list(current.lost),
    }


def _blob_document(blob: blob_pb2.Blob) -> dict[str, Any]:
    return {"sha256": blob.sha256, "size": blob.size}
