"""Conversion of devices and join tokens."""

from __future__ import annotations

from moonfed.coordinator.records import CertificateRecord, DeviceQuery, DeviceRecord, DeviceResult, TokenRecord
from moonfed.v1 import control_pb2


def device_query(message: control_pb2.ListDevicesRequest) -> DeviceQuery:
    """Convert the conditions on devices."""
    return DeviceQuery(labels=dict(message.labels), online=message.online, ineligible=message.ineligible)


def device(record: DeviceRecord) -> control_pb2.Device:
    """Convert a known device."""
    return control_pb2.Device(
        device=record.device,
        online=record.online,
        enrolled=record.enrolled,
        last_seen=record.last_seen,
        certificate_expires=record.certificate_expires,
        platform=dict(record.platform),
        labels={**record.labels, **record.operator_labels},
        operator_labels=dict(record.operator_labels),
        revoked=record.revoked,
        release=record.release,
        rounds=record.rounds,
        last_result=device_result(record.last_result) if record.last_result else None,
        activity=[
            control_pb2.DeviceActivity(
                run=activity.id.run,
                round=activity.id.round,
                attempt=activity.id.attempt,
                fraction=activity.fraction,
            )
            for activity in record.activity
        ],
        ineligible=record.ineligible,
        shared_by=record.shared_by,
        certificates=[_certificate(certificate) for certificate in record.certificates],
    )


def device_result(result: DeviceResult) -> control_pb2.DeviceResult:
    """Convert a device's part in a round."""
    return control_pb2.DeviceResult(
        run=result.id.run,
        round=result.id.round,
        attempt=result.id.attempt,
        outcome=result.outcome,
        reason=result.reason,
        time=result.time,
        seconds=result.seconds,
    )


def _certificate(record: CertificateRecord) -> control_pb2.Certificate:
    return control_pb2.Certificate(
        serial=record.serial, expires=record.expires, rejected=record.rejected, reason=record.reason
    )


def token(record: TokenRecord) -> control_pb2.Token:
    """Convert a join token."""
    return control_pb2.Token(
        id=record.id,
        created=record.created,
        operator=record.operator,
        expires=record.expires,
        uses=record.uses,
        uses_left=record.uses_left,
        device=record.device,
        revoked=record.revoked,
    )
