"""Certificates and join tokens."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from moonfed.coordinator.pki.authority import Authority
from moonfed.coordinator.pki.enrolment import Enrolment
from moonfed.coordinator.storage.db.sqlite import open_store
from moonfed.errors import AlreadyExists, InvalidInput, Untrusted
from moonfed.identity import load_identity, new_key, signing_request, subject_of
from moonfed.join_token import parse_token


@pytest.fixture
def enrolment(tmp_path: Path) -> Iterator[Enrolment]:
    store = open_store(tmp_path / "coordinator.db")
    yield Enrolment(
        authority=Authority(tmp_path / "authority"),
        registry=store.devices,
        address="example.org:7444",
        certificate_life=timedelta(days=90),
    )
    store.close()


def request(name: str = "cam-1") -> bytes:
    return signing_request(new_key(), name)


def secret(enrolment: Enrolment, uses: int = 1, valid_seconds: float = 60.0) -> str:
    return enrolment.create_token(uses, valid_seconds)[0].secret


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


def test_the_operator_has_an_identity_that_is_kept(tmp_path: Path) -> None:
    authority, directory = Authority(tmp_path / "authority"), tmp_path / "operator"
    authority.ensure_operator(directory, "127.0.0.1:7443")
    held = load_identity(directory)
    assert subject_of(held.certificate) == ("operator", "operator")
    authority.ensure_operator(directory, "127.0.0.1:7443")
    assert load_identity(directory) == held
    authority.ensure_operator(directory, "127.0.0.1:9999")
    assert load_identity(directory).address == "127.0.0.1:9999"


def test_a_token_carries_address_and_authority_but_only_its_hash_is_kept(enrolment: Enrolment, tmp_path: Path) -> None:
    token, expires = enrolment.create_token(1, 60.0)
    parsed = parse_token(str(token))
    assert (parsed.address, parsed.ca) == ("example.org:7444", enrolment.authority.ca)
    assert 0 < expires - time.time() <= 60
    kept = b"".join(path.read_bytes() for path in tmp_path.glob("coordinator.db*"))
    assert token.secret.encode() not in kept


def test_a_used_token_an_expired_one_and_a_forged_one_are_rejected(enrolment: Enrolment) -> None:
    once = secret(enrolment)
    enrolment.enrol(once, "cam-1", request())
    with pytest.raises(Untrusted, match="the join token is used up"):
        enrolment.enrol(once, "cam-2", request())
    short = secret(enrolment, valid_seconds=0.01)
    time.sleep(0.02)
    with pytest.raises(Untrusted, match="has expired"):
        enrolment.enrol(short, "cam-2", request())
    with pytest.raises(Untrusted, match="did not issue"):
        enrolment.enrol("guess", "cam-2", request())


def test_a_lost_reply_can_be_asked_for_again_with_the_same_key_and_token(enrolment: Enrolment) -> None:
    once, asked = secret(enrolment), request()
    first = enrolment.enrol(once, "cam-1", asked)
    again = enrolment.enrol(once, "cam-1", asked)
    assert first.key_sha256 == again.key_sha256
    with pytest.raises(Untrusted, match="did not issue"):
        enrolment.enrol("guess", "cam-1", asked)
    with pytest.raises(Untrusted, match="used up"):
        enrolment.enrol(once, "cam-2", asked)


def test_a_device_enrols_again_with_its_key_even_when_its_certificate_has_expired(enrolment: Enrolment) -> None:
    asked = request()
    held = enrolment.enrol(secret(enrolment), "cam-1", asked)
    enrolment.registry.renewed("cam-1", held.key_sha256, time.time() - 86400)
    other = secret(enrolment)
    enrolment.enrol(other, "cam-2", request())
    with pytest.raises(Untrusted, match="used up"):
        enrolment.enrol(other, "cam-1", asked)
    signed = enrolment.enrol(secret(enrolment), "cam-1", asked)
    assert enrolment.registry.devices()[0].certificate_expires == signed.expires > time.time()


def test_after_a_renewal_the_new_key_enrols_again_and_the_old_one_does_not(enrolment: Enrolment) -> None:
    old, new = request(), request()
    enrolment.enrol(secret(enrolment), "cam-1", old)
    renewed = enrolment.renew("cam-1", new)
    assert enrolment.enrol(secret(enrolment), "cam-1", new).key_sha256 == renewed.key_sha256
    with pytest.raises(AlreadyExists, match="'cam-1'"):
        enrolment.enrol(secret(enrolment), "cam-1", old)


def test_nothing_from_an_unauthenticated_caller_is_parsed(enrolment: Enrolment) -> None:
    with pytest.raises(Untrusted, match="did not issue"):
        enrolment.enrol("guess", "cam-1", b"nonsense")


def test_a_taken_name_is_rejected(enrolment: Enrolment) -> None:
    both = secret(enrolment, uses=2)
    enrolment.enrol(both, "cam-1", request())
    with pytest.raises(AlreadyExists, match="'cam-1'"):
        enrolment.enrol(both, "cam-1", request())


@pytest.mark.parametrize("name", ["", "Cam", "../cam", "-cam", ".cam", "a/b", "a b", "x" * 64, "cam\n"])
def test_a_name_that_cannot_be_a_file_name_is_rejected(enrolment: Enrolment, name: str) -> None:
    with pytest.raises(InvalidInput, match="device is"):
        enrolment.enrol(secret(enrolment), name, request())


END_OF_REQUEST = b"-----END CERTIFICATE REQUEST-----"


def rsa_request() -> bytes:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "cam-1")])
    from cryptography.hazmat.primitives.hashes import SHA256

    signed = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, SHA256())
    return signed.public_bytes(serialization.Encoding.PEM)


@pytest.mark.parametrize(
    "content", [b"", b"nonsense", request()[:-80] + b"-----END CERTIFICATE REQUEST-----", rsa_request()]
)
def test_a_malformed_request_is_rejected(enrolment: Enrolment, content: bytes) -> None:
    with pytest.raises(InvalidInput, match="signing_request"):
        enrolment.enrol(secret(enrolment), "cam-1", content)


def test_renewal_signs_a_new_key_for_the_same_name(enrolment: Enrolment) -> None:
    enrolment.enrol(secret(enrolment), "cam-1", request())
    renewed = enrolment.renew("cam-1", request("cam-2"))
    assert subject_of(renewed.certificate) == ("device", "cam-1")
    assert enrolment.registry.devices()[0].certificate_expires == renewed.expires


@pytest.mark.parametrize(("uses", "seconds"), [(0, 60.0), (1, 0.0), (1, -5.0), (1, float("nan")), (1, float("inf"))])
def test_an_unreadable_token_is_rejected(enrolment: Enrolment, uses: int, seconds: float) -> None:
    with pytest.raises(InvalidInput, match=r"(uses|valid_seconds) is"):
        enrolment.create_token(uses, seconds)


def test_a_life_of_seconds_is_not_due_for_renewal_at_once(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    signed = authority.sign(request(), "cam-1", "device", timedelta(seconds=60))
    certificate = x509.load_pem_x509_certificate(signed.certificate)
    assert certificate.not_valid_after_utc - certificate.not_valid_before_utc <= timedelta(seconds=67)
