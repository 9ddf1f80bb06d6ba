"""A certificate authority for tests, made with nothing but the cryptography package."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from moonfed.transport.identity import key_bytes, new_key

DAY = timedelta(days=1)


def requested_key(request: bytes) -> bytes:
    """The public key in a PEM signing request."""
    return public_bytes(x509.load_pem_x509_csr(request).public_key())


def certified_key(certificate: bytes) -> bytes:
    """The public key in a PEM certificate."""
    return public_bytes(x509.load_pem_x509_certificate(certificate).public_key())


def public_bytes(key: object) -> bytes:
    assert isinstance(key, ec.EllipticCurvePublicKey)
    return key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)


@dataclass
class Authority:
    key: ec.EllipticCurvePrivateKey = field(default_factory=new_key)

    @property
    def pem(self) -> bytes:
        return self._signed("authority", None, self.key.public_key(), ca=True)

    def issue(self, name: str, kind: str, *, age: timedelta = DAY, left: timedelta = DAY) -> tuple[bytes, bytes]:
        """A key and a certificate that is `age` old and has `left` to live."""
        key = new_key()
        return key_bytes(key), self._signed(name, kind, key.public_key(), age=age, left=left)

    def sign(self, request: bytes, name: str, *, left: timedelta = DAY) -> bytes:
        """A device certificate for a PEM signing request."""
        return self._signed(name, "device", x509.load_pem_x509_csr(request).public_key(), left=left)

    def _signed(
        self,
        name: str,
        kind: str | None,
        key: object,
        *,
        ca: bool = False,
        age: timedelta = DAY,
        left: timedelta = DAY,
    ) -> bytes:
        subject = [x509.NameAttribute(NameOID.COMMON_NAME, name)]
        if kind:
            subject.append(x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, kind))
        now = datetime.now(timezone.utc)
        names = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))])
        assert isinstance(key, ec.EllipticCurvePublicKey)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(x509.Name(subject))
            .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority")]))
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - age)
            .not_valid_after(now + left)
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .add_extension(names, critical=False)
            .sign(self.key, hashes.SHA256())
        )
        return certificate.public_bytes(serialization.Encoding.PEM)
