"""Runs, rounds and events as the console's pages take them: JSON values; times are seconds since the epoch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from moonfed.v1 import control_pb2


def run_document(run: control_pb2.Run) -> dict[str, Any]:
    """Return a run as its page shows it, with the open round."""
    return {
        **run_summary(run),
        "settings": settings_document(run.settings),
        "eligible": run.eligible,
        "checking": run.checking,
        "ineligible": [{"reason": group.reason, "devices": list(group.devices)} for group in run.ineligible],
        "initial_metrics": finite(run.initial_metrics),
        "open_round": open_round_document(run.open_round) if run.HasField("open_round") else None,
        "manifest": run.manifest.sha256,
        "model": run.model.sha256,
        "model_bytes": run.model.size,
    }


def run_summary(run: control_pb2.Run) -> dict[str, Any]:
    """Return a run as the list shows it."""
    return {
        "run": run.run,
        "status": _word(control_pb2.RunStatus.Name(run.status), "RUN_STATUS_"),
        "method": run.method,
        "round": run.round,
        "rounds": run.settings.rounds,
        "created": run.created,
        "waiting": run.waiting,
        "reason": run.reason,
        "eligible": run.eligible,
        "reported": len(run.open_round.reported),
        "target": run.open_round.target,
    }


def settings_document(settings: control_pb2.RunSettings) -> dict[str, Any]:
    """Return a run's settings as one level of names and texts or numbers."""
    found: dict[str, Any] = {
        "cohort": amount(settings.cohort),
        "quorum": amount(settings.quorum),
        "minimum devices": settings.minimum_devices,
        "deadline": f"{settings.deadline_seconds:g} s",
        "heartbeat timeout": f"{settings.heartbeat_timeout_seconds:g} s",
        "sampling": _word(control_pb2.Sampling.Name(settings.sampling), "SAMPLING_"),
        "over-selection": f"{100 * settings.over_selection:g} %",
        "downlink": settings.downlink_encoding or "float32",
        "uplink": settings.uplink_encoding or "float32",
        "seed": settings.seed,
    }
    if settings.labels:
        found["labels"] = ", ".join(f"{name}={value}" for name, value in sorted(settings.labels.items()))
    if settings.HasField("asynchronous"):
        found["buffer"] = settings.asynchronous.buffer
        found["maximum staleness"] = settings.asynchronous.max_staleness
    if settings.HasField("robust"):
        robust = settings.robust
        found["reducer"] = robust.reducer or "mean"
        found |= {"weight cap": f"{100 * robust.weight_cap:g} %"} if robust.weight_cap else {}
        found |= {"clip norm": robust.clip_norm} if robust.clip_norm else {}
        found |= {"clip factor": robust.clip_factor} if robust.clip_factor else {}
    return found


def open_round_document(current: control_pb2.OpenRound) -> dict[str, Any]:
    """Return the open round."""
    return {
        "round": current.round,
        "attempt": current.attempt,
        "cohort": list(current.cohort),
        "reported": list(current.reported),
        "rejected": list(current.rejected),
        "declined": list(current.declined),
        "lost": list(current.lost),
        "left": list(current.left),
        "seconds": current.seconds,
        "target": current.target,
        "progress": finite(current.progress),
        "reasons": dict(current.reasons),
    }


def round_document(round_: control_pb2.Round) -> dict[str, Any]:
    """Return a round with the numbers of its devices; their names are in its own document."""
    return {
        "round": round_.round,
        "attempt": round_.attempt,
        "committed": round_.status == control_pb2.ROUND_STATUS_COMMITTED,
        "counted": len(round_.counted),
        "missing": len(round_.missing),
        "updates": round_.updates,
        "incidents": len(round_.incidents),
        "reason": round_.reason,
        "seconds": round_.seconds,
        "metrics": finite(round_.metrics),
        "phases": finite(round_.phases),
        "outcomes": dict(round_.outcomes),
        "received_bytes": round_.received_bytes,
        "sent_bytes": round_.sent_bytes,
    }


def round_devices_document(round_: control_pb2.Round) -> dict[str, Any]:
    """Return a round with the names of its devices."""
    return round_document(round_) | {
        "counted": list(round_.counted),
        "missing": list(round_.missing),
        "incidents": [{"device": one.device, "description": one.description} for one in round_.incidents],
    }


def event_document(event: control_pb2.RunEvent) -> dict[str, Any]:
    """Return an event without its empty fields."""
    fields: dict[str, Any] = {
        "round": event.round,
        "attempt": event.attempt,
        "device": event.device,
        "devices": list(event.devices),
        "reason": event.reason,
        "metrics": finite(event.metrics),
    }
    return {"event": event_name(event)} | {name: value for name, value in fields.items() if value}


def event_name(event: control_pb2.RunEvent) -> str:
    """Return an event's kind in lower case."""
    return _word(control_pb2.EventKind.Name(event.kind), "EVENT_KIND_")


def amount(value: control_pb2.Amount) -> str:
    """Return a number of devices as the command line takes it."""
    return str(value.count) if value.WhichOneof("amount") == "count" else f"{100 * value.fraction:g}%"


def finite(values: Mapping[str, float]) -> dict[str, float | None]:
    """Return metrics with None in place of what JSON has no number for."""
    return {name: value if math.isfinite(value) else None for name, value in sorted(values.items())}


def _word(name: str, prefix: str) -> str:
    return name.removeprefix(prefix).lower()
