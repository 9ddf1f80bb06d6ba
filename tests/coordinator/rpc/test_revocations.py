"""Certificates that are no longer accepted."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace

import pytest

from moonfed.coordinator.rpc.revocations import Revocations
from moonfed.coordinator.storage.certificates import Reason, Rejection
from moonfed.errors import Renamed, Untrusted
from moonfed.transport.identity import Certificate
from tests.support.device_certificates import registry_view

NOW = 1_700_000_000.0


class Clocks:
    """A wall clock, which may jump, and a monotonic one."""

    wall, monotonic = NOW, 100.0

    def revocations(self) -> Revocations:
        return Revocations(lambda: self.wall, lambda: self.monotonic)


def certificate(name: str = "cam-1", expires: float = NOW + 3600.0, serial: str = "1f") -> Certificate:
    return Certificate(kind="device", name=name, serial=serial, expires=expires)


def apply(made: Revocations, rejections: Mapping[str, Rejection]) -> None:
    asyncio.run(made.apply(registry_view(devices=rejections, operators=frozenset({"2e"}))))


def test_a_certificate_is_rejected_once_it_has_expired() -> None:
    clocks = Clocks()
    made = clocks.revocations()
    assert made.rejection(certificate()) is None
    clocks.wall += 3600.0
    clocks.monotonic += 3600.0
    reason = str(made.rejection(certificate()))
    expired = "the certificate 1f of device 'cam-1' expired on 2023-11-14 23:13 UTC"
    assert reason == f"{expired}; enrol the device again with a new join token"


def test_an_operators_certificate_is_rejected_once_it_has_expired() -> None:
    operator = Certificate(kind="operator", name="ann", role="admin", serial="1f", expires=NOW)
    reason = str(Clocks().revocations().rejection(operator))
    assert reason.startswith("the certificate 1f of operator 'ann' expired on 2023-11-14")
    assert reason.endswith("; ask an admin for a new identity")  # operators cannot enrol


@pytest.mark.parametrize("jump", [-(10**9), 10**9])
def test_a_wall_clock_that_jumps_expires_nothing(jump: float) -> None:
    clocks = Clocks()
    made = clocks.revocations()
    clocks.wall += jump
    clocks.monotonic += 60.0
    assert made.rejection(certificate()) is None


def test_a_certificate_is_rejected_by_its_serial_number() -> None:
    made = Clocks().revocations()
    apply(made, {"1f": Rejection(reason="replaced", device="cam-1")})
    assert made.rejection(certificate())
    assert made.rejection(certificate(serial="20")) is None, "the device's new one"
    assert made.rejection(certificate("cam-2", serial="21")) is None
    operator = Certificate(kind="operator", name="cam-1", role="admin", serial="1f", expires=NOW + 3600.0)
    assert made.rejection(operator) is None
    apply(made, {})
    assert made.rejection(certificate()) is None


def test_an_operators_certificate_is_rejected_by_its_serial_number() -> None:
    made = Clocks().revocations()
    revoked = Certificate(kind="operator", name="ann", role="admin", serial="2e", expires=NOW + 3600.0)
    assert made.rejection(revoked) is None
    apply(made, {})
    message = "the certificate 2e of operator 'ann' was revoked by an operator; ask an admin for a new one"
    assert str(made.rejection(revoked)) == message
    assert made.rejection(replace(revoked, serial="2f")) is None, "the operator was created again"
    assert made.rejection(certificate(serial="2e")) is None


@pytest.mark.parametrize(
    ("reason", "kind", "sentence"),
    [
        (
            "revoked",
            Untrusted,
            "was revoked by an operator; the device can return with a join token that an operator creates for it",
        ),
        (
            "removed",
            Untrusted,
            "was rejected because an operator removed the device; enrol it with a new join token, "
            "in an empty state directory",
        ),
        (
            "replaced",
            Untrusted,
            "was replaced: a device has enrolled as 'gate' with a token for it; if this is that device, start it "
            "again, otherwise enrol it under another name in an empty state directory",
        ),
        (
            "renamed",
            Renamed,
            "is outdated: an operator renamed the device to 'gate'; renew it under that name",
        ),
    ],
)
def test_each_reason_says_what_happened_and_what_to_do(reason: Reason, kind: type[Untrusted], sentence: str) -> None:
    made = Clocks().revocations()
    apply(made, {"1f": Rejection(reason=reason, device="gate")})
    found = made.rejection(certificate())
    assert type(found) is kind
    assert str(found) == f"the certificate 1f of device 'cam-1' {sentence}"
