"""A program's identity: a directory with its key, its certificate and the authority that signed it.

ca.pem            the coordinator's authority; the only one this program trusts
certificate.pem   names the holder (CN), its kind (OU: device or operator) and an operator's role
key.pem           generated locally, never sent
coordinator.json  {"address": "host:port"}
"""

from __future__ import annotations

import json
import re
import socket
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import lru_cache
from pathlib import Path
from typing import Literal, cast, get_args

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from moonfed.errors import Corrupt, InvalidInput, NotFound, Untrusted
from moonfed.files import make_directories, write_durably

Kind = Literal["device", "operator"]
Role = Literal["viewer", "evaluator", "engineer", "admin"]  # of an operator; each may do all that the one before may
KINDS: tuple[Kind, ...] = get_args(Kind)
ROLES: tuple[Role, ...] = get_args(Role)
ROLE_ATTRIBUTE = x509.ObjectIdentifier("2.5.4.72")  # X.520's attribute "role", in an operator's subject
CA_FILE = "ca.pem"
CERTIFICATE_FILE = "certificate.pem"
KEY_FILE = "key.pem"
COORDINATOR_FILE = "coordinator.json"
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
NAME_RULE = "1 to 63 of a-z, 0-9, '.', '_' and '-', starting with a letter or a digit"
RENEW_AT = 1 / 3  # of a certificate's life left: enough for a device that is rarely online


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A loaded identity directory."""

    directory: Path
    address: str  # host:port of the Fleet or Control service
    ca: bytes
    certificate: bytes
    key: bytes

    @property
    def name(self) -> str:
        """The device's or operator's name."""
        return subject_of(self.certificate)[1]

    @property
    def begins(self) -> datetime:
        """Start of the certificate's validity (UTC)."""
        return x509.load_pem_x509_certificate(self.certificate).not_valid_before_utc

    @property
    def expires(self) -> datetime:
        """End of the certificate's validity (UTC)."""
        return x509.load_pem_x509_certificate(self.certificate).not_valid_after_utc

    @property
    def has_expired(self) -> bool:
        """True if the certificate has expired by this machine's clock, which may be wrong."""
        return self.expires <= datetime.now(timezone.utc)

    @property
    def expiry(self) -> str:
        """The moment of expiry, this machine's time, and advice."""
        device = subject_of(self.certificate)[0] == "device"
        advice = "enrol again with a new join token" if device else "ask an admin for a new identity"
        now = datetime.now(timezone.utc)
        return (
            f"expired on {self.expires:%Y-%m-%d %H:%M} UTC, and this machine's clock says {now:%Y-%m-%d %H:%M} UTC; "
            f"if that is right, {advice}"
        )

    def require_valid(self) -> None:
        """Raise Untrusted if the certificate has expired by this machine's clock."""
        if self.has_expired:
            raise Untrusted(f"the certificate of {self.name!r} {self.expiry}")

    @property
    def rejection(self) -> str | None:
        """Reason why a coordinator with this authority would reject the certificate, if one can be found locally."""
        held, authority = (x509.load_pem_x509_certificate(content) for content in (self.certificate, self.ca))
        try:
            held.verify_directly_issued_by(authority)
        except (InvalidSignature, TypeError, ValueError):
            return "it is signed by another authority"
        return f"it {self.expiry}" if self.has_expired else None

    @property
    def renewal(self) -> datetime:
        """The time from which less than a third of the certificate's life is left (UTC)."""
        certificate = x509.load_pem_x509_certificate(self.certificate)
        life = certificate.not_valid_after_utc - certificate.not_valid_before_utc
        return certificate.not_valid_after_utc - RENEW_AT * life

    def is_due_for_renewal(self) -> bool:
        """Return whether less than a third of the certificate's life is left."""
        return self.renewal < datetime.now(timezone.utc)


def load_identity(directory: Path) -> Identity:
    """Read an identity directory; NotFound names what is missing, Corrupt a damaged file."""
    contents = {}
    for name in (CA_FILE, CERTIFICATE_FILE, KEY_FILE, COORDINATOR_FILE):
        path = directory / name
        if not path.is_file():
            raise NotFound(f"{directory} holds no identity: {name} is missing", field=name)
        contents[name] = path.read_bytes()
    try:
        address = str(json.loads(contents[COORDINATOR_FILE])["address"])
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidInput(f'{directory / COORDINATOR_FILE} must hold {{"address": "host:port"}}') from error
    try:
        x509.load_pem_x509_certificate(contents[CERTIFICATE_FILE])
        x509.load_pem_x509_certificate(contents[CA_FILE])
        serialization.load_pem_private_key(contents[KEY_FILE], None)
    except ValueError as error:
        raise Corrupt(f"{directory} holds a damaged certificate or key; replace the identity") from error
    return Identity(
        directory=directory,
        address=address,
        ca=contents[CA_FILE],
        certificate=contents[CERTIFICATE_FILE],
        key=contents[KEY_FILE],
    )


def save_identity(directory: Path, *, address: str, ca: bytes, certificate: bytes, key: bytes) -> None:
    """Write an identity directory that only its owner can read; the certificate last, so that it is complete."""
    make_directories(directory, mode=0o700)
    write_durably(directory / KEY_FILE, key, mode=0o600)
    write_durably(directory / CA_FILE, ca, mode=0o600)
    write_durably(directory / COORDINATOR_FILE, json.dumps({"address": address}).encode(), mode=0o600)
    write_durably(directory / CERTIFICATE_FILE, certificate, mode=0o600)


def require_name(field: str, name: str) -> str:
    """Return a valid name of a device, an operator or a run; raises InvalidInput. Names also become file names."""
    if not NAME.fullmatch(name):
        raise InvalidInput(field=field, value=name, allowed=NAME_RULE)
    return name


def default_name() -> str:
    """Return a device's name if none is given: its host's, in lower case; raises InvalidInput if that is not valid."""
    host = socket.gethostname()
    if not NAME.fullmatch(host.lower()):
        raise InvalidInput(
            field="this machine's name", value=host, rest=f"; a device's must be {NAME_RULE}: give one with --name"
        )
    return host.lower()


def new_key() -> ec.EllipticCurvePrivateKey:
    """Return a fresh P-256 key."""
    return ec.generate_private_key(ec.SECP256R1())


def key_bytes(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return a key as unencrypted PKCS#8 PEM."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def signing_request(key: ec.EllipticCurvePrivateKey, name: str) -> bytes:
    """Return a PKCS#10 request, PEM, for a certificate in that valid name."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    request = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    return request.public_bytes(serialization.Encoding.PEM)


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """Holder, serial number and expiry of a certificate."""

    kind: Kind
    name: str
    serial: str  # hexadecimal
    expires: float  # seconds since the epoch
    role: Role | None = None  # None for a device


@lru_cache(maxsize=4096)  # called for every call of every device
def read_certificate(certificate: bytes) -> Certificate:
    """Read a PEM certificate; Untrusted if it names no device, and no operator with a role."""
    parsed = x509.load_pem_x509_certificate(certificate)
    name = _attribute(parsed, NameOID.COMMON_NAME)
    kind = _attribute(parsed, NameOID.ORGANIZATIONAL_UNIT_NAME)
    role = _attribute(parsed, ROLE_ATTRIBUTE)
    if not name or kind not in KINDS:
        raise Untrusted("the certificate names neither a device nor an operator of this coordinator")
    if kind == "operator" and role not in ROLES:
        raise Untrusted(
            f"the certificate of operator {name!r} has no role; ask an admin for a new identity",
            field="role of operator",
            value=name,
        )
    return Certificate(
        kind=kind,
        name=name,
        role=cast(Role, role) if kind == "operator" else None,
        serial=f"{parsed.serial_number:x}",
        expires=parsed.not_valid_after_utc.timestamp(),
    )


def subject_of(certificate: bytes) -> tuple[Kind, str]:
    """Return the kind and name of a PEM certificate's holder; Untrusted as for `read_certificate`."""
    read = read_certificate(certificate)
    return read.kind, read.name


def _attribute(certificate: x509.Certificate, identifier: x509.ObjectIdentifier) -> str:
    """Return the first attribute of that kind in a certificate's subject; empty if there is none."""
    found = certificate.subject.get_attributes_for_oid(identifier)
    return str(found[0].value) if found else ""
