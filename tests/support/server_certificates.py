"""Certificates for test servers and their clients."""

from __future__ import annotations

import datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


def write_certificate(key_file: Path, certificate_file: Path) -> None:
    """Write a new key and a self-signed certificate for localhost as PEM files."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.timezone.utc)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    key_file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    certificate_file.write_bytes(made.public_bytes(serialization.Encoding.PEM))


def write_authority(directory: Path) -> tuple[Path, Path, Path]:
    """Write an authority's certificate, and the key and certificate of a client; return the paths of the three."""
    directory.mkdir()
    authority_key, client_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    issuer, subject = (x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, each)]) for each in ("ca", "client"))
    now = datetime.datetime.now(datetime.timezone.utc)
    paths = directory / "ca.pem", directory / "key.pem", directory / "certificate.pem"
    certificates = ((issuer, authority_key, paths[0], True), (subject, client_key, paths[2], False))
    for name, key, path, is_authority in certificates:
        made = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            .sign(authority_key, hashes.SHA256())
        )
        path.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(
        client_key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return paths
