"""Decoders of signatures and trust files."""

from __future__ import annotations

import hashlib

from moonfed.models.release_manifest import ReleaseManifest
from moonfed.signing.bundle_signature import BundleSignature, verify
from moonfed.signing.statement import Statement
from moonfed.signing.trust import Trust, TrustChain
from tests.fuzzing.decoder import Decoder
from tests.support.releases import release_manifest
from tests.support.signatures import CHAIN, ROTATED, TRUST, signature

MANIFEST = b"a manifest"
DIGEST = hashlib.sha256(MANIFEST).hexdigest()
NOW = 1_800_000_000.0


def _verify(content: bytes) -> None:
    verify(content, DIGEST, now=NOW, trust=TRUST)


def _read_signature(content: bytes) -> None:
    """Read a whole signature, trusted or not."""
    found = BundleSignature.from_bytes(content)
    _ = found.statement, found.chain.newest
    found.chain.verify()


def _signatures() -> list[bytes]:
    return [signature(MANIFEST, expires=NOW + 1).to_bytes()]


SIGNING_DECODERS = (
    Decoder(name="verified_signature", read=_verify, seeds=_signatures),
    Decoder(name="bundle_signature", read=_read_signature, seeds=_signatures),
    Decoder(
        name="signed_statement",
        read=Statement.from_bytes,
        seeds=lambda: [signature(MANIFEST, expires=NOW + 1).statement.to_bytes()],
    ),
    Decoder(name="release_manifest", read=ReleaseManifest.from_bytes, seeds=lambda: [release_manifest().to_bytes()]),
    Decoder(name="trust_file", read=Trust.from_bytes, seeds=lambda: [TRUST.to_bytes()]),
    Decoder(
        name="trust_chain",
        read=lambda content: TrustChain.from_bytes(content).verify(),
        seeds=lambda: [CHAIN.to_bytes(), ROTATED.to_bytes()],
    ),
)
