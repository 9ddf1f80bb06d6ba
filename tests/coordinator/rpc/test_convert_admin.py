"""Conversion of devices and join tokens."""

from __future__ import annotations

from moonfed.coordinator.records import CertificateRecord, DeviceRecord, TokenRecord
from moonfed.coordinator.rpc import convert_admin


def test_a_device_shows_whether_it_is_online_and_its_labels_overridden_by_the_operators() -> None:
    record = DeviceRecord(
        device="a",
        enrolled=1.0,
        last_seen=2.0,
        certificate_expires=3.0,
        platform={"torch": "2.6"},
        online=True,
        labels={"site": "rome", "tier": "1"},
        operator_labels={"site": "ulm"},
        revoked=4.0,
        certificates=(CertificateRecord(serial="1f", expires=3.0, rejected=4.0, reason="revoked"),),
    )
    shown = convert_admin.device(record)
    assert (shown.device, shown.online, dict(shown.platform)) == ("a", True, {"torch": "2.6"})
    assert (shown.enrolled, shown.last_seen, shown.certificate_expires, shown.revoked) == (1.0, 2.0, 3.0, 4.0)
    assert (dict(shown.labels), dict(shown.operator_labels)) == ({"site": "ulm", "tier": "1"}, {"site": "ulm"})
    (certificate,) = shown.certificates
    assert (certificate.serial, certificate.expires) == ("1f", 3.0)
    assert (certificate.rejected, certificate.reason) == (4.0, "revoked")


def test_a_token_is_shown_without_its_secret() -> None:
    record = TokenRecord(
        id="1f", created=1.0, operator="anna", expires=2.0, uses=3, uses_left=2, device="a", revoked=4.0
    )
    shown = convert_admin.token(record)
    assert {field.name: value for field, value in shown.ListFields()} == {
        "id": "1f",
        "created": 1.0,
        "operator": "anna",
        "expires": 2.0,
        "uses": 3,
        "uses_left": 2,
        "device": "a",
        "revoked": 4.0,
    }
