"""Runs, rounds and events as JSON values. Times are ISO 8601 in UTC, durations seconds."""

from __future__ import annotations

from typing import Any

from moonfed.control.run_settings import RunSettings
from moonfed.coordinator.documents.values import blob_document, event_name, finite, round_status, run_status
from moonfed.coordinator.rounds.phases import PHASES
from moonfed.formatting import iso_time
from moonfed.v1 import control_pb2


def run_document(run: control_pb2.Run) -> dict[str, Any]:
    """Return a run with its open round."""
    return {
        "run": run.run,
        "status": run_status(run),
        "method": run.method,
        "round": run.round,
        "settings": RunSettings.received(run.settings).to_document(),
        "manifest": blob_document(run.manifest),
        "model": blob_document(run.model),
        "waiting": run.waiting,
        "reason": run.reason,
        "created": iso_time(run.created),
        "initial_metrics": finite(run.initial_metrics),
        "open_round": _open_round_document(run.open_round) if run.HasField("open_round") else None,
        "eligible": run.eligible,
        "checking": run.checking,
        "clipped": dict(run.clipped),
        "ineligible": {group.reason: list(group.devices) for group in run.ineligible},
        "absent_classes": list(run.absent_classes),
    }


def round_document(round_: control_pb2.Round) -> dict[str, Any]:
    """Return a round that has ended, with the names of its devices."""
    return {
        "round": round_.round,
        "attempt": round_.attempt,
        "status": round_status(round_),
        "model": blob_document(round_.model) if round_.HasField("model") else None,
        "counted": list(round_.counted),
        "missing": list(round_.missing),
        "reason": round_.reason,
        "metrics": finite(round_.metrics),
        "seconds": round_.seconds,
        "updates": round_.updates,
        "phases": {phase: round_.phases[phase] for phase in PHASES if phase in round_.phases},
        "outcomes": dict(round_.outcomes),
        "received_bytes": round_.received_bytes,
        "sent_bytes": round_.sent_bytes,
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
        "model": blob_document(event.model) if event.HasField("model") else None,
        "metrics": finite(event.metrics),
        "fraction": event.fraction,
        "pending": event.pending,
        "reused": list(event.reused),
        "run": run_document(event.run) if event.HasField("run") else None,
    }
    return {"event": event_name(event)} | {name: value for name, value in fields.items() if value}


def _open_round_document(current: control_pb2.OpenRound) -> dict[str, Any]:
    return {
        "round": current.round,
        "attempt": current.attempt,
        "cohort": list(current.cohort),
        "reported": list(current.reported),
        "rejected": list(current.rejected),
        "declined": list(current.declined),
        "lost": list(current.lost),
        "left": list(current.left),
        "replacements": list(current.replacements),
        "seconds": current.seconds,
        "target": current.target,
        "progress": finite(current.progress),
        "reasons": dict(current.reasons),
    }
