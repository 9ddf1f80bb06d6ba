"""Conversion of messages about devices and join tokens."""

from __future__ import annotations

import time

from moonfed.client.convert.times import moment, moment_or_none
from moonfed.client.records.devices import Certificate, Device, DeviceActivity, DeviceResult, Token, TokenStatus
from moonfed.labels import INFERENCE_ONLY
from moonfed.v1 import control_pb2


def device(message: control_pb2.Device) -> Device:
    """Convert a device."""
    return Device(
        device=message.device,
        online=message.online,
        enrolled=moment_or_none(message.enrolled),
        last_seen=moment_or_none(message.last_seen),
        certificate_expires=moment_or_none(message.certificate_expires),
        revoked=moment_or_none(message.revoked),
        release=message.release,
        rounds=message.rounds,
        labels=dict(message.labels),
        operator_labels=dict(message.operator_labels),
        platform=dict(message.platform),
        last_result=_result(message.last_result) if message.HasField("last_result") else None,
        activity=tuple(map(_activity, message.activity)),
        ineligible=message.ineligible,
        inference_only=INFERENCE_ONLY in message.platform,
        shared_by=tuple(message.shared_by),
        certificates=tuple(map(_certificate, message.certificates)),
    )


def token(message: control_pb2.Token) -> Token:
    """Convert a join token."""
    return Token(
        id=message.id,
        status=_status(message),
        created=moment(message.created),
        operator=message.operator,
        expires=moment(message.expires),
        uses=message.uses,
        uses_left=message.uses_left,
        device=message.device,
        revoked=moment_or_none(message.revoked),
    )


def _status(message: control_pb2.Token) -> TokenStatus:
    if message.revoked:
        return "revoked"
    if message.expires <= time.time():
        return "expired"
    return "valid" if message.uses_left else "used up"


def _result(message: control_pb2.DeviceResult) -> DeviceResult:
    return DeviceResult(
        run=message.run,
        round=message.round,
        attempt=message.attempt,
        outcome=message.outcome,
        reason=message.reason,
        time=moment(message.time),
        seconds=message.seconds or None,
    )


def _activity(message: control_pb2.DeviceActivity) -> DeviceActivity:
    return DeviceActivity(run=message.run, round=message.round, attempt=message.attempt, fraction=message.fraction)


def _certificate(message: control_pb2.Certificate) -> Certificate:
    return Certificate(
        serial=message.serial,
        expires=moment(message.expires),
        rejected=moment_or_none(message.rejected),
        reason=message.reason,
    )
