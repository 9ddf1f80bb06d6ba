"""The certificate authority of one coordinator: its key, and certificates for server, devices and operators."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from moonfed.errors import InvalidInput
from moonfed.files import make_directories, write_durably
from moonfed.transport.identity import RENEW_AT, ROLE_ATTRIBUTE, Kind, Role, key_bytes, new_key

AUTHORITY_LIFE, SERVER_LIFE = timedelta(days=3650), timedelta(days=730)
BACKDATING = timedelta(minutes=5)  # for devices whose clock is a little slow
ALWAYS_NAMES = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerCredentials:
    """The credentials of the TLS ports, all PEM."""

    ca: bytes
    certificate: bytes
    key: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Signed:
    """A newly signed certificate."""

    certificate: bytes  # PEM
    expires: float  # seconds since the epoch
    key_sha256: str  # of its public key
    serial: str  # hexadecimal

    @property
    def expiry(self) -> datetime:
        """Time of expiry (UTC)."""
        return datetime.fromtimestamp(self.expires, timezone.utc)


class Authority:
    """The certificate authority whose key is in `directory`; key and certificate are created if absent."""

    def __init__(self, directory: Path) -> None:
        make_directories(directory, mode=0o700)
        self._directory = directory
        if not (directory / "ca.pem").is_file():  # written last, so the key exists too
            _make_authority(directory)
        self.ca = (directory / "ca.pem").read_bytes()
        self._certificate = x509.load_pem_x509_certificate(self.ca)
        self._key = _load_key(directory / "ca-key.pem")

    def server_credentials(self, names: Sequence[str]) -> ServerCredentials:
        """Return the server's certificate for these names and localhost, reissued on a change or before it expires."""
        alternatives = x509.SubjectAlternativeName([_general_name(name) for name in _unique(names)])
        path, key_path = self._directory / "server.pem", self._directory / "server-key.pem"
        if not path.is_file() or not self._is_current(x509.load_pem_x509_certificate(path.read_bytes()), alternatives):
            key = new_key()
            subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "moonfed coordinator")])
            builder = self._builder(subject, key.public_key(), SERVER_LIFE, ExtendedKeyUsageOID.SERVER_AUTH)
            certificate = builder.add_extension(alternatives, critical=False).sign(self._key, hashes.SHA256())
            path.unlink(missing_ok=True)  # a certificate must never be next to another certificate's key
            write_durably(key_path, key_bytes(key), mode=0o600)
            write_durably(path, certificate.public_bytes(serialization.Encoding.PEM))
        return ServerCredentials(ca=self.ca, certificate=path.read_bytes(), key=key_path.read_bytes())

    def sign(self, request: bytes, name: str, kind: Kind, life: timedelta, role: Role | None = None) -> Signed:
        """Sign a client certificate for the key in a signing request; the name in the request is ignored.

        `role`: an operator's.
        """
        public_key = _requested_key(request)
        subject = [
            x509.NameAttribute(NameOID.COMMON_NAME, name),
            x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, kind),
        ]
        if role:
            subject.append(x509.NameAttribute(ROLE_ATTRIBUTE, role))
        builder = self._builder(x509.Name(subject), public_key, life, ExtendedKeyUsageOID.CLIENT_AUTH)
        certificate = builder.sign(self._key, hashes.SHA256())
        return Signed(
            certificate=certificate.public_bytes(serialization.Encoding.PEM),
            expires=certificate.not_valid_after_utc.timestamp(),
            key_sha256=_key_digest(public_key),
            serial=f"{certificate.serial_number:x}",
        )

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey, life: timedelta, use: x509.ObjectIdentifier
    ) -> x509.CertificateBuilder:
        now = datetime.now(timezone.utc)
        return (
            _common(subject, key, now - min(BACKDATING, life / 10), now + life)
            .issuer_name(self._certificate.subject)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([use]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )

    def _is_current(self, certificate: x509.Certificate, alternatives: x509.SubjectAlternativeName) -> bool:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        left = certificate.not_valid_after_utc - datetime.now(timezone.utc)
        try:
            certificate.verify_directly_issued_by(self._certificate)
        except (InvalidSignature, ValueError):
            return False
        return found == alternatives and left > RENEW_AT * SERVER_LIFE


def _requested_key(request: bytes) -> ec.EllipticCurvePublicKey:
    """Return a PKCS#10 request's public key after verifying that the sender has the private key."""
    try:
        parsed = x509.load_pem_x509_csr(request)
        signed, key = parsed.is_signature_valid, parsed.public_key()
    except Exception as error:  # whatever a damaged request makes the parser raise
        raise InvalidInput("signing_request is not a PKCS#10 request in PEM") from error
    if not signed or not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise InvalidInput("signing_request must be signed by the P-256 key that it names")
    return key


def public_key_sha256(certificate: bytes) -> str:
    """Return the sha256 of the public key in a PEM certificate."""
    key = x509.load_pem_x509_certificate(certificate).public_key()
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise InvalidInput("the certificate's key must be an elliptic curve key")
    return _key_digest(key)


def _key_digest(key: ec.EllipticCurvePublicKey) -> str:
    """Return the sha256 of a public key in hexadecimal digits."""
    digest = hashes.Hash(hashes.SHA256())
    digest.update(key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo))
    return digest.finalize().hex()


def _make_authority(directory: Path) -> None:
    key, now = new_key(), datetime.now(timezone.utc)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "moonfed authority")])
    certificate = (
        _common(subject, key.public_key(), now - BACKDATING, now + AUTHORITY_LIFE)
        .issuer_name(subject)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_signing_only(), critical=True)
        .sign(key, hashes.SHA256())
    )
    write_durably(directory / "ca-key.pem", key_bytes(key), mode=0o600)
    write_durably(directory / "ca.pem", certificate.public_bytes(serialization.Encoding.PEM))


def _common(
    subject: x509.Name, key: ec.EllipticCurvePublicKey, start: datetime, end: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _signing_only() -> x509.KeyUsage:
    unused = ("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement")
    off = dict.fromkeys((*unused, "encipher_only", "decipher_only"), False)
    return x509.KeyUsage(key_cert_sign=True, crl_sign=True, **off)


def _load_key(path: Path) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise InvalidInput(f"{path} must contain the P-256 key that moonfed wrote")
    return key


def _unique(names: Sequence[str]) -> list[str]:
    return list(dict.fromkeys((*names, *ALWAYS_NAMES)))


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        pass
    try:
        return x509.DNSName(name)
    except ValueError as error:
        raise InvalidInput(field="name", value=name, allowed="a host name or an IP address") from error
