"""Runs, rounds, events and devices as JSON values, which `--json` prints. Times are ISO 8601, durations seconds."""

from __future__ import annotations

from typing import Any

from moonfed.coordinator.cli.format import amount_text, event_name, round_status, run_status
from moonfed.coordinator.cli.format_eligibility import eligibility_document
from moonfed.coordinator.cli.format_robust import incidents_document, robust_document
from moonfed.coordinator.rounds.phases import PHASES
from moonfed.formatting import iso_time
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
        "reason": run.reason,
        "created": iso_time(run.created),
        "initial_metrics": dict(run.initial_metrics),
        "open_round": _open_round_document(run.open_round) if run.HasField("open_round") else None,
        **eligibility_document(run),
    }


def round_document(round_: control_pb2.Round) -> dict[str, Any]:
    """Return a round as JSON values."""
    return {
        "round": round_.round,
        "attempt": round_.attempt,
        "status": round_status(round_),
        "model": _blob_document(round_.model) if round_.HasField("model") else None,
        "counted": list(round_.counted),
        "missing": list(round_.missing),
        "reason": round_.reason,
        "metrics": dict(round_.metrics),
        "seconds": round_.seconds,
        "updates": round_.updates,
        "phases": {phase: round_.phases[phase] for phase in PHASES if phase in round_.phases},
        "outcomes": dict(round_.outcomes),
        "received_bytes": round_.received_bytes,
        "sent_bytes": round_.sent_bytes,
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
        "pending": event.pending,
        "reused": list(event.reused),
        "run": run_document(event.run) if event.HasField("run") else None,
    }
    return {"event": event_name(event)} | {name: value for name, value in fields.items() if value}


def device_document(device: control_pb2.Device) -> dict[str, Any]:
    """Return a device as JSON values."""
    return {
        "device": device.device,
        "online": device.online,
        "enrolled": iso_time(device.enrolled),
        "last_seen": iso_time(device.last_seen),
        "certificate_expires": iso_time(device.certificate_expires),
        "platform": dict(device.platform),
        "labels": dict(device.labels),
        "operator_labels": dict(device.operator_labels),
        "revoked": iso_time(device.revoked),
        "release": device.release,
        "rounds": device.rounds,
        "last_result": result_document(device.last_result) if device.HasField("last_result") else None,
        **({"ineligible": device.ineligible} if device.ineligible else {}),
        "activity": [
            {
                "run": activity.run,
                "round": activity.round,
                "attempt": activity.attempt,
                "fraction": activity.fraction,
            }
            for activity in device.activity
        ],
    }


def _settings_document(settings: control_pb2.RunSettings) -> dict[str, Any]:
    return {
        "rounds": settings.rounds,
        "cohort": amount_text(settings.cohort),
        "minimum_devices": settings.minimum_devices,
        "quorum": amount_text(settings.quorum),
        "deadline_seconds": settings.deadline_seconds,
        "max_attempts": settings.max_attempts,
        "heartbeat_timeout_seconds": settings.heartbeat_timeout_seconds,
        "seed": settings.seed,
        "sampling": control_pb2.Sampling.Name(settings.sampling).removeprefix("SAMPLING_").lower(),
        "downlink_encoding": settings.downlink_encoding,
        "uplink_encoding": settings.uplink_encoding,
        "retention": {"last": settings.retention.last, "every": settings.retention.every},
        "over_selection": settings.over_selection,
        "labels": dict(settings.labels),
        "trusted_labels": settings.trusted_labels,
        "asynchronous": _asynchronous_document(settings),
        "robust": robust_document(settings.robust) if settings.HasField("robust") else None,
    }


def _asynchronous_document(settings: control_pb2.RunSettings) -> dict[str, int] | None:
    chosen = settings.asynchronous
    if not settings.HasField("asynchronous"):
        return None
    return {"buffer": chosen.buffer, "max_staleness": chosen.max_staleness}


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
        "progress": dict(current.progress),
        "reasons": dict(current.reasons),
    }


def _blob_document(blob: blob_pb2.Blob) -> dict[str, Any]:
    return {"sha256": blob.sha256, "size": blob.size}


def result_document(result: control_pb2.DeviceResult) -> dict[str, Any]:
    """Return a device's part in a round as JSON values."""
    return {
        "run": result.run,
        "round": result.round,
        "attempt": result.attempt,
        "outcome": result.outcome,
        "reason": result.reason,
        "time": iso_time(result.time),
        "seconds": result.seconds,
    }
