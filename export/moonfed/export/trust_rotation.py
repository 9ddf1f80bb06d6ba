"""Rotation of the keys that sign bundles: the next version of a trust file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from moonfed.errors import InvalidInput, UntrustedBundle
from moonfed.signing.envelope import PublicKey
from moonfed.signing.key_files import (
    TRUST_FILE,
    default_directory,
    new_key_file,
    read_key,
    read_public_key,
    read_trust,
    signing_keys,
    write_trust,
)
from moonfed.signing.trust import Trust, TrustChain


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change of a trust file; without add, remove and threshold, a new key replaces one's own."""

    add: tuple[Path, ...] = ()  # public keys
    remove: tuple[str, ...] = ()  # ids, or their beginnings
    threshold: int | None = None  # None: as before, or all keys if there are fewer
    expires: int | None = None  # of the new version, in seconds since the epoch; None: never

    @property
    def replaces_own(self) -> bool:
        """True if one's own keys are replaced."""
        return not (self.add or self.remove) and self.threshold is None


def rotate_trust(directory: Path, change: Change) -> tuple[Path, TrustChain]:
    """Write the next version of a directory's trust file, signed with the directory's keys; return its file.

    The file is trust.json if the signatures suffice, else trust-VERSION.json, for the owners of other keys.
    """
    chain = read_trust(directory / TRUST_FILE)
    trust = chain.verify()
    own = signing_keys(directory, trust.keys)
    keys = _changed(trust, change)
    if change.replaces_own:
        new = new_key_file(directory)[1]  # on disk before a trust file lists it
        keys = keys - {PublicKey.of(key) for key in own} | {PublicKey.of(new)}
    threshold = min(trust.threshold, len(keys)) if change.threshold is None else change.threshold
    successor = Trust(version=trust.version + 1, keys=tuple(sorted(keys)), threshold=threshold, expires=change.expires)
    rotated = _signed(
        TrustChain((*chain.envelopes, successor.unsigned())), signing_keys(directory, keys | set(trust.keys))
    )
    path = directory / (TRUST_FILE if _suffices(rotated) else f"trust-{successor.version}.json")
    write_trust(path, rotated)
    return path, rotated


def sign_trust(path: Path, keys: Sequence[Path]) -> TrustChain:
    """Add signatures to the newest version of a trust file; by default, with all of this user's keys that it names."""
    chain = read_trust(path)
    own = [read_key(key) for key in keys] or _user_keys(chain)
    signed = _signed(chain, own)
    write_trust(path, signed)
    return signed


def _user_keys(chain: TrustChain) -> list[Ed25519PrivateKey]:
    listed = {key for envelope in chain.envelopes[-2:] for key in Trust.from_bytes(envelope.payload).keys}
    return signing_keys(default_directory(), listed)


def _signed(chain: TrustChain, keys: Sequence[Ed25519PrivateKey]) -> TrustChain:
    *before, newest = chain.envelopes
    for key in keys:
        newest = newest.sign(key)
    return TrustChain((*before, newest))


def _suffices(chain: TrustChain) -> bool:
    try:
        chain.verify()
    except UntrustedBundle:
        return False
    return True


def _changed(trust: Trust, change: Change) -> set[PublicKey]:
    keys = set(trust.keys) | {read_public_key(path) for path in change.add}
    for beginning in change.remove:
        found = [key for key in keys if key.id.startswith(beginning)]
        if len(found) != 1:
            listed = ", ".join(map(str, trust.keys))
            raise InvalidInput(field="remove", value=beginning, allowed=f"the beginning of one key's id: {listed}")
        keys -= set(found)
    return keys
