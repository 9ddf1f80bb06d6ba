"""Certificates by serial number: which are rejected, and why."""

from __future__ import annotations

import sqlalchemy as sql

from moonfed.coordinator.storage import certificates
from moonfed.coordinator.storage.certificates import Rejection
from moonfed.coordinator.storage.store import Store
from tests.support.device_certificates import LATER


def connection(store: Store) -> sql.Connection:
    connected = store._transactions._engine.connect()
    for serial, device in (("1", "a"), ("2", "a"), ("3", "b")):
        certificates.add(connected, serial, device, LATER)
    return connected


def test_only_the_certificates_of_that_moment_are_rejected(store: Store) -> None:
    with connection(store) as connected:
        assert certificates.rejections(connected) == {}
        certificates.reject(connected, "a", "replaced")
        certificates.add(connected, "4", "a", LATER)
        replaced = Rejection(reason="replaced", device="a")
        assert certificates.rejections(connected) == {"1": replaced, "2": replaced}
        assert certificates.find(connected, "1") == ("a", "replaced")
        assert certificates.find(connected, "4") == ("a", "")
        assert certificates.find(connected, "9") is None


def test_a_rejected_certificate_is_not_accepted_again(store: Store) -> None:
    with connection(store) as connected:
        certificates.reject(connected, "a", "revoked")
        certificates.add(connected, "1", "a", LATER)
        certificates.reject(connected, "a", "removed")
        certificates.rename(connected, "a", "c")
        assert certificates.find(connected, "1") == ("a", "revoked")
        assert [found.reason for found in certificates.issued_to(connected, "a")] == ["revoked", "revoked"]


def test_a_renamed_devices_certificates_lead_to_its_present_name_and_can_still_be_rejected(store: Store) -> None:
    with connection(store) as connected:
        certificates.rename(connected, "a", "c")
        certificates.add(connected, "4", "c", LATER)
        certificates.rename(connected, "c", "d")
        assert {certificates.find(connected, serial) for serial in ("1", "2", "4")} == {("d", "renamed")}
        certificates.reject(connected, "d", "revoked")
        assert {certificates.find(connected, serial) for serial in ("1", "2", "4")} == {("d", "revoked")}
        assert certificates.find(connected, "3") == ("b", "")
