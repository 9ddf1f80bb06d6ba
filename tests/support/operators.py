"""Operators with roles, made with a coordinator's own calls."""

from __future__ import annotations

from pathlib import Path

import grpc

from moonfed.transport import client as transport
from moonfed.transport.identity import Identity, key_bytes, load_identity, new_key, save_identity, signing_request
from moonfed.v1 import control_pb2, control_pb2_grpc
from tests.support.coordinator import OperatorCalls, ask


def create_operator(admin: OperatorCalls, directory: Path, name: str, role: str, ca: bytes) -> Identity:
    """Write the identity of a new operator."""
    key = new_key()
    request = control_pb2.CreateOperatorRequest(operator=name, role=role, signing_request=signing_request(key, name))
    reply = ask(admin.control.CreateOperator, request)
    save_identity(directory, address=reply.address, ca=ca, certificate=reply.certificate, key=key_bytes(key))
    return load_identity(directory)


def revoke_operator(admin: OperatorCalls, name: str) -> list[str]:
    """Return the serial numbers of the revoked certificates."""
    reply = ask(admin.control.RevokeOperator, control_pb2.RevokeOperatorRequest(operator=name))
    return [operator.serial for operator in reply.operators]


def calls_of(identity: Identity) -> OperatorCalls:
    channel: grpc.Channel = transport.open_channel(identity.address, identity)
    return OperatorCalls(control_pb2_grpc.ControlStub(channel), channel)


def audit_records(operator: OperatorCalls, **chosen: object) -> list[control_pb2.AuditRecord]:
    """Return the chosen records, oldest first."""
    request = control_pb2.ListAuditRecordsRequest(**chosen)  # type: ignore[arg-type]  # the fields of the message
    records = ask(lambda asked, timeout: list(operator.control.ListAuditRecords(asked, timeout=timeout)), request)
    assert isinstance(records, list)
    return records
