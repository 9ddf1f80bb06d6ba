"""Records of the audit trail as JSON."""

from __future__ import annotations

from moonfed.coordinator.documents.audit import audit_document
from moonfed.v1 import control_pb2

RECORD = control_pb2.AuditRecord(
    number=7,
    time=1_700_000_000.25,
    name="ann",
    role="engineer",
    serial="1f",
    address="10.0.0.7:51234",
    call="StopRun",
    details="stop run 'digits'",
    outcome="done",
    count=1,
)


def test_a_record_has_its_caller_its_call_and_its_outcome() -> None:
    assert audit_document(RECORD) == {
        "number": 7,
        "time": "2023-11-14T22:13:20Z",
        "name": "ann",
        "role": "engineer",
        "serial": "1f",
        "address": "10.0.0.7:51234",
        "call": "StopRun",
        "details": "stop run 'digits'",
        "allowed": True,
        "outcome": "done",
        "reason": "",
        "count": 1,
    }
    assert audit_document(control_pb2.AuditRecord(outcome="denied"))["allowed"] is False
