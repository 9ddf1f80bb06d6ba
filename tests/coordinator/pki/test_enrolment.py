"""Enrolment: join tokens, names, and certificates for devices that ask again."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

from moonfed.coordinator.pki.enrolment import Enrolment, token_id
from moonfed.errors import AlreadyExists, InvalidInput, NotFound, Untrusted
from moonfed.formatting import moment
from moonfed.transport.identity import read_certificate, subject_of
from moonfed.transport.join_token import parse_token
from tests.coordinator.pki.conftest import request, secret
from tests.support.refusals import refused


def test_a_token_carries_address_and_authority_but_only_its_hash_is_kept(enrolment: Enrolment, tmp_path: Path) -> None:
    token, record = enrolment.create_token(1, 60.0, operator="anna")
    parsed = parse_token(str(token))
    assert (parsed.address, parsed.ca) == ("example.org:7444", enrolment.authority.ca)
    assert 0 < record.expires.timestamp() - time.time() <= 60
    assert (record.operator, record.uses_left, parsed.device) == ("anna", 1, "")
    assert enrolment.registry.tokens() == [record]
    assert record.id == token_id(token.secret)
    kept = b"".join(path.read_bytes() for path in tmp_path.glob("coordinator.db*"))
    assert token.secret.encode() not in kept


def test_a_used_token_an_expired_one_and_a_forged_one_are_rejected(enrolment: Enrolment) -> None:
    once = secret(enrolment)
    enrolment.enrol(once, "cam-1", request())
    with refused(Untrusted, "join token", "used up"):
        enrolment.enrol(once, "cam-2", request())
    short = secret(enrolment, valid_seconds=0.01)
    time.sleep(0.02)
    with pytest.raises(Untrusted, match="has expired"):
        enrolment.enrol(short, "cam-2", request())
    with refused(Untrusted, "join token", "unknown"):
        enrolment.enrol("guess", "cam-2", request())


def test_a_lost_reply_can_be_asked_for_again_with_the_same_key_and_token(enrolment: Enrolment) -> None:
    once, asked = secret(enrolment), request()
    first = enrolment.enrol(once, "cam-1", asked)
    again = enrolment.enrol(once, "cam-1", asked)
    assert first.key_sha256 == again.key_sha256
    with refused(Untrusted, "join token", "unknown"):
        enrolment.enrol("guess", "cam-1", asked)
    with pytest.raises(Untrusted, match="used up"):
        enrolment.enrol(once, "cam-2", asked)


def test_a_device_enrols_again_with_its_key_even_when_its_certificate_has_expired(enrolment: Enrolment) -> None:
    asked = request()
    enrolment = replace(enrolment, certificate_life=timedelta(microseconds=10))
    enrolment.enrol(secret(enrolment), "cam-1", asked)
    enrolment = replace(enrolment, certificate_life=timedelta(days=90))
    other = secret(enrolment)
    enrolment.enrol(other, "cam-2", request())
    with pytest.raises(Untrusted, match="used up"):
        enrolment.enrol(other, "cam-1", asked)
    signed = enrolment.enrol(secret(enrolment), "cam-1", asked)
    assert enrolment.registry.devices()[0].certificate_expires == moment(signed.expires)
    assert signed.expires > time.time()


def test_after_a_renewal_the_new_key_enrols_again_and_the_old_one_does_not(enrolment: Enrolment) -> None:
    old, new = request(), request()
    first = enrolment.enrol(secret(enrolment), "cam-1", old)
    renewed = enrolment.renew(read_certificate(first.certificate), new)
    assert enrolment.enrol(secret(enrolment), "cam-1", new).key_sha256 == renewed.key_sha256
    with pytest.raises(AlreadyExists, match="'cam-1'"):
        enrolment.enrol(secret(enrolment), "cam-1", old)


def test_nothing_from_an_unauthenticated_caller_is_parsed(enrolment: Enrolment) -> None:
    with refused(Untrusted, "join token", "unknown"):
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
    first = enrolment.enrol(secret(enrolment), "cam-1", request())
    renewed = enrolment.renew(read_certificate(first.certificate), request("cam-2"))
    assert subject_of(renewed.certificate) == ("device", "cam-1")
    assert enrolment.registry.devices()[0].certificate_expires == moment(renewed.expires)
    known = [found.serial for found in enrolment.registry.device("cam-1").certificates]
    assert sorted(known) == sorted([first.serial, renewed.serial])


def test_a_renamed_device_renews_in_its_new_name(enrolment: Enrolment) -> None:
    first = enrolment.enrol(secret(enrolment), "cam-1", request())
    enrolment.registry.rename("cam-1", "gate")
    renewed = enrolment.renew(read_certificate(first.certificate), request())
    assert subject_of(renewed.certificate) == ("device", "gate")


def test_a_token_for_one_device_enrols_no_other(enrolment: Enrolment) -> None:
    enrolment.enrol(secret(enrolment), "cam-1", request())
    token, record = enrolment.create_token(1, 60.0, device="cam-1")
    assert parse_token(str(token)).device == record.device == "cam-1"
    with refused(Untrusted, "join token", "cam-1"):
        enrolment.enrol(token.secret, "cam-2", request())
    assert subject_of(enrolment.enrol(token.secret, "cam-1", request()).certificate) == ("device", "cam-1")
    with refused(NotFound, "device", "cam-7"):
        enrolment.create_token(1, 60.0, device="cam-7")
    with refused(InvalidInput, "uses", 2):
        enrolment.create_token(2, 60.0, device="cam-1")


@pytest.mark.parametrize(("uses", "seconds"), [(0, 60.0), (1, 0.0), (1, -5.0), (1, float("nan")), (1, float("inf"))])
def test_an_unreadable_token_is_rejected(enrolment: Enrolment, uses: int, seconds: float) -> None:
    with pytest.raises(InvalidInput, match=r"(uses|valid_seconds) is"):
        enrolment.create_token(uses, seconds)
