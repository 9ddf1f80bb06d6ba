"""Devices as the console's pages take them: JSON values; times are seconds since the epoch."""

from __future__ import annotations

from typing import Any

from moonfed.v1 import control_pb2


def device_row(device: control_pb2.Device) -> dict[str, Any]:
    """Return a device as the table shows it."""
    activity = device.activity[0] if device.activity else None
    return {
        "device": device.device,
        "online": device.online,
        "revoked": device.revoked,
        "last_seen": device.last_seen,
        "labels": dict(device.labels),
        "release": device.release,
        "rounds": device.rounds,
        "ineligible": device.ineligible,
        "activity": {"run": activity.run, "round": activity.round, "fraction": activity.fraction} if activity else None,
        "last": result_document(device.last_result) if device.HasField("last_result") else None,
    }


def device_document(device: control_pb2.Device) -> dict[str, Any]:
    """Return a device as its own page shows it."""
    return device_row(device) | {
        "enrolled": device.enrolled,
        "certificate_expires": device.certificate_expires,
        "platform": dict(sorted(device.platform.items())),
        "operator_labels": dict(device.operator_labels),
        "certificates": [
            {"serial": one.serial, "expires": one.expires, "rejected": one.rejected, "reason": one.reason}
            for one in device.certificates
        ],
    }


def result_document(result: control_pb2.DeviceResult) -> dict[str, Any]:
    """Return a device's part in an attempt that has ended."""
    return {
        "run": result.run,
        "round": result.round,
        "attempt": result.attempt,
        "outcome": result.outcome,
        "reason": result.reason,
        "time": result.time,
        "seconds": result.seconds,
    }


def outcomes_document(outcomes: control_pb2.RoundOutcomes) -> dict[str, Any]:
    """Return what became of each device in an attempt, as the names of its devices by outcome."""
    by_outcome: dict[str, list[str]] = {}
    for device, outcome in outcomes.outcomes.items():
        by_outcome.setdefault(outcome, []).append(device)
    return {
        "round": outcomes.round,
        "attempt": outcomes.attempt,
        "committed": outcomes.status == control_pb2.ROUND_STATUS_COMMITTED,
        "time": outcomes.time,
        "outcomes": by_outcome,
    }
