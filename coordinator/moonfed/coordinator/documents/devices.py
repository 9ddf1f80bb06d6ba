"""Devices and their results as JSON values. Times are ISO 8601 in UTC, durations seconds."""

from __future__ import annotations

from typing import Any

from moonfed.formatting import iso_time
from moonfed.labels import INFERENCE_ONLY
from moonfed.v1 import control_pb2


def device_summary(device: control_pb2.Device) -> dict[str, Any]:
    """Return what changes while a device works, for tables of many devices."""
    return {
        "device": device.device,
        "online": device.online,
        "last_seen": iso_time(device.last_seen),
        "labels": dict(device.labels),
        "revoked": iso_time(device.revoked),
        "release": device.release,
        "rounds": device.rounds,
        "last_result": result_document(device.last_result) if device.HasField("last_result") else None,
        "inference_only": INFERENCE_ONLY in device.platform,
        "shared_by": list(device.shared_by),
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


def device_document(device: control_pb2.Device) -> dict[str, Any]:
    """Return a device without its certificates, which lists do not have."""
    return device_summary(device) | {
        "enrolled": iso_time(device.enrolled),
        "certificate_expires": iso_time(device.certificate_expires),
        "platform": dict(sorted(device.platform.items())),
        "operator_labels": dict(device.operator_labels),
    }


def device_document_with_certificates(device: control_pb2.Device) -> dict[str, Any]:
    """Return a device of GetDevice, or of a call that changed it."""
    return device_document(device) | {"certificates": [_certificate_document(one) for one in device.certificates]}


def result_document(result: control_pb2.DeviceResult) -> dict[str, Any]:
    """Return a device's part in an attempt that has ended."""
    return {
        "run": result.run,
        "round": result.round,
        "attempt": result.attempt,
        "outcome": result.outcome,
        "reason": result.reason,
        "time": iso_time(result.time),
        "seconds": result.seconds,
    }


def _certificate_document(certificate: control_pb2.Certificate) -> dict[str, Any]:
    return {
        "serial": certificate.serial,
        "expires": iso_time(certificate.expires),
        "rejected": iso_time(certificate.rejected),
        "reason": certificate.reason,
    }
