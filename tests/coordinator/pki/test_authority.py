"""Certificates of the authority."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from moonfed.coordinator.pki.authority import Authority
from moonfed.coordinator.pki.enrolment import Enrolment
from moonfed.transport.identity import subject_of
from tests.coordinator.pki.conftest import request, secret


def test_the_server_certificate_carries_the_names_and_is_kept(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    held = authority.server_credentials(["coordinator.example.org", "192.0.2.7"])
    certificate = x509.load_pem_x509_certificate(held.certificate)
    found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert set(found.get_values_for_type(x509.DNSName)) == {"coordinator.example.org", "localhost"}
    assert {str(ip) for ip in found.get_values_for_type(x509.IPAddress)} == {"192.0.2.7", "127.0.0.1", "::1"}
    certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(authority.ca))
    again = Authority(tmp_path)
    assert again.ca == authority.ca
    assert again.server_credentials(["coordinator.example.org", "192.0.2.7"]) == held
    assert again.server_credentials(["other.example.org"]) != held


def test_keys_are_for_their_owner_alone(tmp_path: Path) -> None:
    Authority(tmp_path / "a").server_credentials([])
    for name in ("ca-key.pem", "server-key.pem"):
        assert (tmp_path / "a" / name).stat().st_mode & 0o077 == 0


def test_the_authority_gives_the_name_and_the_role(enrolment: Enrolment) -> None:
    signed = enrolment.enrol(secret(enrolment), "cam-1", request("somebody-else"))
    assert subject_of(signed.certificate) == ("device", "cam-1")
    certificate = x509.load_pem_x509_certificate(signed.certificate)
    usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.CLIENT_AUTH]
    assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(enrolment.authority.ca))
    left = certificate.not_valid_after_utc - datetime.now(timezone.utc)
    assert timedelta(days=89) < left <= timedelta(days=90)


def test_a_life_of_seconds_is_not_due_for_renewal_at_once(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    signed = authority.sign(request(), "cam-1", "device", timedelta(seconds=60))
    certificate = x509.load_pem_x509_certificate(signed.certificate)
    assert certificate.not_valid_after_utc - certificate.not_valid_before_utc <= timedelta(seconds=67)
