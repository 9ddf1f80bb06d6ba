"""A Fleet service over real TLS, and certificates of an authority made with nothing but the cryptography package."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from moonfed import errors
from moonfed.transport.grpc_status import to_status
from moonfed.transport.identity import Identity, key_bytes, load_identity, new_key, save_identity
from moonfed.v1 import blob_pb2, fleet_pb2, fleet_pb2_grpc

CONTENT = bytes(range(251)) * 20_000  # 5 MB: several chunks
HOUR = datetime.timedelta(hours=1)


@dataclass
class Authority:
    """An authority made with nothing but the cryptography package."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @classmethod
    def make(cls) -> Authority:
        key = new_key()
        return cls(key, _certificate("authority", None, key, "authority", key, ca=True))

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    def issue(
        self,
        name: str,
        kind: str,
        *,
        role: str = "",
        life: datetime.timedelta = HOUR,
        begins: datetime.timedelta = -2 * HOUR,
    ) -> tuple[bytes, bytes]:
        key = new_key()
        certificate = _certificate(name, kind, key, "authority", self.key, role=role, life=life, begins=begins)
        return key_bytes(key), certificate.public_bytes(serialization.Encoding.PEM)


def _certificate(
    name: str,
    kind: str | None,
    key: ec.EllipticCurvePrivateKey,
    issuer: str,
    issuer_key: ec.EllipticCurvePrivateKey,
    *,
    ca: bool = False,
    role: str = "",
    life: datetime.timedelta = HOUR,
    begins: datetime.timedelta = -2 * HOUR,
) -> x509.Certificate:
    subject = [x509.NameAttribute(NameOID.COMMON_NAME, name)]
    if kind:
        subject.append(x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, kind))
    if role:
        subject.append(x509.NameAttribute(x509.ObjectIdentifier("2.5.4.72"), role))
    now = datetime.datetime.now(datetime.timezone.utc)
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name(subject))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + begins)
        .not_valid_after(now + life)
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        .add_extension(
            x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))]),
            critical=False,
        )
    )
    return builder.sign(issuer_key, hashes.SHA256())


class Fleet(fleet_pb2_grpc.FleetServicer):
    """Streams CONTENT, breaking off once; answers Decline with an error; counts the calls."""

    def __init__(self) -> None:
        self.fetches: list[int] = []
        self.reports = 0

    def Fetch(self, request: blob_pb2.FetchRequest, context: grpc.ServicerContext) -> Iterator[blob_pb2.Chunk]:
        self.fetches.append(request.offset)
        for start in range(request.offset, len(CONTENT), 1 << 20):
            if len(self.fetches) == 1 and start:
                context.abort(grpc.StatusCode.UNAVAILABLE, "the line broke")
            yield blob_pb2.Chunk(data=CONTENT[start : start + (1 << 20)])

    def Decline(self, request: fleet_pb2.DeclineRequest, context: grpc.ServicerContext) -> fleet_pb2.DeclineReply:
        code, details, metadata = to_status(errors.SchemaMismatch("tensor 'a' is wrong"))
        context.set_trailing_metadata(metadata)
        context.abort(code, details)

    def Report(self, request: fleet_pb2.ReportRequest, context: grpc.ServicerContext) -> fleet_pb2.ReportReply:
        self.reports += 1
        if self.reports < 3:
            context.abort(grpc.StatusCode.UNAVAILABLE, "not yet")
        return fleet_pb2.ReportReply(stop=True)

    def Renew(self, request: fleet_pb2.RenewRequest, context: grpc.ServicerContext) -> fleet_pb2.RenewReply:
        code, details, metadata = to_status(errors.Unavailable("the coordinator is stopping"))
        context.set_trailing_metadata(metadata)
        context.abort(code, details)


@dataclass
class Served:
    address: str
    authority: Authority
    fleet: Fleet
    directory: Path

    def identity(self, authority: Authority | None = None, **options: datetime.timedelta) -> Identity:
        """An identity whose certificate `authority` signed and that trusts the server's authority."""
        key, certificate = (authority or self.authority).issue("cam-1", "device", role="", **options)
        directory = self.directory / str(len(list(self.directory.iterdir())))
        save_identity(directory, address=self.address, ca=self.authority.pem, certificate=certificate, key=key)
        return load_identity(directory)
