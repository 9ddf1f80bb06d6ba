"""Signing of bundles with an engineer's keys."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from moonfed.bundle.files import Bundle, read_bundle, sign_bundle, write_bundle
from moonfed.errors import InvalidInput
from moonfed.sandbox.plan_process import require_safe_plan
from moonfed.signing.bundle_signature import BundleSignature
from moonfed.signing.key_files import Signer
from moonfed.validate import require_positive

DAY = 24 * 3600
MAX_DAYS = 36_500.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SigningOptions:
    """Options of a new signature."""

    version: int | None = None  # of the bundle; None: seconds since the epoch, which grow with every bundle
    expires_days: float = 365.0
    clock: Callable[[], float] = time.time

    def __post_init__(self) -> None:
        require_positive("expires-days", self.expires_days)
        if self.expires_days > MAX_DAYS:
            raise InvalidInput(
                f"expires-days is {self.expires_days:g}; it must be at most {MAX_DAYS:g}",
                field="expires-days",
                value=self.expires_days,
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedBundle:
    """The signatures of a bundle that was signed."""

    bundle: Bundle
    version: int
    signatures: int
    threshold: int

    @property
    def missing(self) -> str:
        """The end of a sentence about the signatures that are still needed; empty if there are enough."""
        needed = self.threshold - self.signatures
        if needed <= 0:
            return ""
        return f"; it needs {needed} more signature{'s' if needed > 1 else ''}: moonfed-export sign"


def sign_new(bundle: Bundle, signer: Signer, options: SigningOptions) -> SignedBundle:
    """Sign a bundle, in place of earlier signatures."""
    now = options.clock()
    version = int(now) if options.version is None else options.version
    return _described(sign_bundle(bundle, signer, version=version, expires=now + options.expires_days * DAY), signer)


def resign(path: Path, signer: Signer, options: SigningOptions, *, renew: bool) -> SignedBundle:
    """Sign a bundle on disk; without `renew`, add to signatures that another key of the signer's trust file made.

    Raises UnsafePlan for a plan that devices would reject.
    """
    bundle = read_bundle(path)
    require_safe_plan(bundle.plans)
    present = None if renew else _present(bundle, signer)
    if present is None:
        signed = sign_new(bundle, signer, options)
    else:
        envelope = present.envelope
        for key in signer.keys:
            envelope = envelope.sign(key)
        content = BundleSignature(envelope, signer.chain).to_bytes()
        signed = _described(replace(bundle, signature=content), signer)
    write_bundle(path, signed.bundle)
    return signed


def _present(bundle: Bundle, signer: Signer) -> BundleSignature | None:
    """Return the bundle's signature if it is for this manifest and by a key of the signer's trust file."""
    if not bundle.signature:
        return None
    present = BundleSignature.from_bytes(bundle.signature)
    ours = present.statement.manifest == bundle.ref.sha256 and signer.chain.newest.signers(present.envelope)
    return present if ours else None


def _described(bundle: Bundle, signer: Signer) -> SignedBundle:
    signature, trust = BundleSignature.from_bytes(bundle.signature), signer.chain.newest
    return SignedBundle(
        bundle=bundle,
        version=signature.statement.version,
        signatures=len(trust.signers(signature.envelope)),
        threshold=trust.threshold,
    )
