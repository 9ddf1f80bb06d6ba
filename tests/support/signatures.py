"""Keys, trust files and signatures for tests."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from moonfed.bundle.files import Bundle
from moonfed.files import write_durably
from moonfed.signing.bundle_signature import BundleSignature, sign
from moonfed.signing.envelope import Envelope, PublicKey
from moonfed.signing.key_files import TRUST_FILE, write_trust
from moonfed.signing.statement import BUNDLE, Signable, Statement
from moonfed.signing.trust import Trust, TrustChain

FAR = 4_000_000_000  # seconds since the epoch: the year 2096


def key(number: int) -> Ed25519PrivateKey:
    """Return one of any number of private keys; the same number is the same key."""
    return Ed25519PrivateKey.from_private_bytes(hashlib.sha256(b"test key %d" % number).digest())


def trust(*numbers: int, version: int = 1, threshold: int = 1, expires: int | None = None) -> Trust:
    """Return a version of a trust file with the keys of these numbers."""
    keys = sorted(PublicKey.of(key(number)) for number in numbers)
    return Trust(version=version, keys=tuple(keys), threshold=threshold, expires=expires)


def issued(given: Trust, *numbers: int) -> Envelope:
    """Return a version of a trust file signed with the keys of these numbers."""
    envelope = given.unsigned()
    for number in numbers:
        envelope = envelope.sign(key(number))
    return envelope


def write_keys(directory: Path, *numbers: int, chain: TrustChain | None = None) -> None:
    """Write a person's directory with the private keys of these numbers; by default, key 1 and its trust file."""
    directory.mkdir(parents=True, exist_ok=True)
    for number in numbers or (1,):
        private = key(number).private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        write_durably(directory / f"key-{PublicKey.of(key(number))}.pem", private, mode=0o600)
    write_trust(directory / TRUST_FILE, chain or CHAIN)


TRUST = trust(1)
CHAIN = TrustChain((issued(TRUST, 1),))
ROTATED = TrustChain((*CHAIN.envelopes, issued(trust(2, version=2), 1, 2)))  # key 2 in place of key 1


def signature(
    manifest: bytes,
    *,
    name: str = "tested",
    version: int = 1,
    expires: float = FAR,
    keys: Sequence[int] = (1,),
    chain: TrustChain = CHAIN,
    kind: Signable = BUNDLE,
) -> BundleSignature:
    """Sign a manifest; by default with key 1, for longer than any test lasts."""
    statement = Statement(
        name=name,
        version=version,
        manifest=hashlib.sha256(manifest).hexdigest(),
        expires=int(expires),
    )
    return sign(statement, [key(number) for number in keys], chain, kind)


def signed(bundle: Bundle, **fields: Any) -> Bundle:
    """Return the bundle with a signature; `fields`: see `signature`."""
    content = signature(bundle.manifest.to_bytes(), **{"name": bundle.manifest.name, **fields}).to_bytes()
    return replace(bundle, signature=content)
