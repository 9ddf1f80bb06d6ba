"""Records of the audit trail as JSON values."""

from __future__ import annotations

from typing import Any

from moonfed.formatting import iso_time
from moonfed.v1 import control_pb2


def audit_document(record: control_pb2.AuditRecord) -> dict[str, Any]:
    """Return an audit record."""
    return {
        "number": record.number,
        "time": iso_time(record.time),
        "name": record.name,
        "role": record.role,
        "serial": record.serial,
        "address": record.address,
        "call": record.call,
        "details": record.details,
        "allowed": record.outcome != "denied",
        "outcome": record.outcome,
        "reason": record.reason,
        "count": record.count,
    }
