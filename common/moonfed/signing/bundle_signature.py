"""The signature of a bundle or a release: a signed statement, and the chain of trust files that leads to its keys."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from moonfed.errors import InvalidInput, UntrustedBundle
from moonfed.signing import canonical
from moonfed.signing.envelope import Envelope
from moonfed.signing.statement import BUNDLE, Signable, Statement
from moonfed.signing.trust import Trust, TrustChain

SIGNATURE_FILE = "signature.json"  # next to the manifest, which does not name it
MAX_BYTES = canonical.MAX_BYTES
NO_VERSIONS: Mapping[str, int] = {}
Check = Callable[[bytes, str], Statement]  # verifies a signature file for a manifest's sha256


@dataclass(frozen=True, slots=True)
class BundleSignature:
    """The content of a signature file; nothing in it has been verified."""

    envelope: Envelope  # of a Statement
    chain: TrustChain

    @property
    def statement(self) -> Statement:
        """The statement, not verified; InvalidInput if it is malformed."""
        return Statement.from_bytes(self.envelope.payload)

    def to_bytes(self) -> bytes:
        """Return the canonical form."""
        return canonical.encode({"signature": self.envelope.to_document(), "trust": self.chain.to_document()})

    @classmethod
    def from_bytes(cls, content: bytes, signed: Signable = BUNDLE) -> BundleSignature:
        """Read the canonical form; InvalidInput says what is wrong."""
        subject = f"the {signed.noun}'s signature"
        read = canonical.fields(canonical.decode(content, subject), subject, {"signature": dict, "trust": list})
        envelope = Envelope.from_document(read["signature"], signed.media_type, subject)
        return cls(envelope, TrustChain.from_document(read["trust"]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """A verified signature: what was signed, and the newest trust file, which may be newer than the one given."""

    statement: Statement
    trust: Trust


def sign(
    statement: Statement, keys: Sequence[Ed25519PrivateKey], chain: TrustChain, signed: Signable = BUNDLE
) -> BundleSignature:
    """Sign a statement with these keys."""
    envelope = Envelope(kind=signed.media_type, payload=statement.to_bytes())
    for key in keys:
        envelope = envelope.sign(key)
    return BundleSignature(envelope, chain)


def verify(
    content: bytes,
    manifest: str,
    *,
    now: float,
    trust: Trust | None = None,
    accepted: Mapping[str, int] = NO_VERSIONS,
    signed: Signable = BUNDLE,
) -> Verified:
    """Verify a signature file; UntrustedBundle or UntrustedRelease says why it is rejected.

    `manifest`: the manifest's sha256. `trust`: the trusted version; None: check that the signature agrees with its own
    chain, which finds mistakes, not attacks. `accepted`: the newest version of each name that was accepted earlier.
    """
    noun = signed.noun
    if not content:
        raise signed.error(f"the {noun} is not signed{signed.advice}")
    try:
        signature = BundleSignature.from_bytes(content, signed)
        newest = signature.chain.follow(trust) if trust else signature.chain.verify()
        _require_signed(signature.envelope, newest, signed)
        statement = signature.statement
    except InvalidInput as error:
        raise signed.error(f"the {noun}'s signature is invalid: {error}") from error
    except UntrustedBundle as error:  # from the chain of trust files
        raise signed.error(str(error)) from error
    _require_current(statement, newest, now, signed)
    if statement.manifest != manifest:
        raise signed.error(
            f"the {noun}'s signature is for another manifest: {statement.manifest[:12]} instead of {manifest[:12]}"
        )
    if statement.version < accepted.get(statement.name, 0):
        raise signed.error(
            f"version {statement.version} of {noun} {statement.name!r} is older than version "
            f"{accepted[statement.name]}, which was accepted here"
        )
    return Verified(statement=statement, trust=newest)


def signed_by(
    trust: Trust | None, clock: Callable[[], float] = time.time, accepted: Mapping[str, int] = NO_VERSIONS
) -> Check:
    """Return a check that a signature is valid now; for `trust` and `accepted` see `verify`."""
    return lambda content, manifest: verify(content, manifest, now=clock(), trust=trust, accepted=accepted).statement


def require_name(statement: Statement, name: str) -> None:
    """Raise UntrustedBundle unless the manifest's name is the signed one."""
    if statement.name != name:
        raise UntrustedBundle(
            f"the bundle is named {name!r}, but signed as {statement.name!r}", field="name", value=name
        )


def moment(seconds: float) -> str:
    """Return a point in time for people; a year beyond 9999 as its number of seconds."""
    try:
        return f"{datetime.fromtimestamp(seconds, timezone.utc):%Y-%m-%d %H:%M} UTC"
    except (ValueError, OverflowError, OSError):
        return f"{seconds:.0f} s after 1970"


def _require_signed(envelope: Envelope, trust: Trust, signed: Signable) -> None:
    signers = trust.signers(envelope)
    if not signers:
        claimed = ", ".join(signature.key[:12] for signature in envelope.signatures)
        trusted = ", ".join(map(str, trust.keys))
        raise signed.error(f"the {signed.noun} is signed by {claimed}, which is not trusted; trusted: {trusted}")
    if len(signers) < trust.threshold:
        raise signed.error(
            f"the {signed.noun} has {len(signers)} signature{'s' if len(signers) > 1 else ''} of trusted keys; "
            f"it needs {trust.threshold}"
        )


def _require_current(statement: Statement, trust: Trust, now: float, signed: Signable) -> None:
    if statement.expires <= now:
        raise signed.error(
            f"the {signed.noun}'s signature expired on {moment(statement.expires)}; sign the {signed.noun} again"
        )
    if trust.expires is not None and trust.expires <= now:
        raise signed.error(f"{trust} expired on {moment(trust.expires)}; its owners must issue a new one")
