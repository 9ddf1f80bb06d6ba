"""Trust files: the keys that may sign bundles, and the chain by which a newer file replaces an older one.

Lessons of TUF's root metadata (https://theupdateframework.github.io/specification/): versions follow each other without
gaps, and each is signed both by enough keys of its predecessor and by enough of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from moonfed.errors import InvalidInput, UntrustedBundle
from moonfed.signing import canonical
from moonfed.signing.envelope import Envelope, PublicKey
from moonfed.signing.statement import MAX_NUMBER
from moonfed.validate import require, require_whole

KIND = "application/vnd.moonfed.trust+json"
MAX_KEYS, MAX_VERSIONS = 16, 64  # in one file; in one chain
_SUBJECT = "a trust file"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """One version of a trust file."""

    version: int
    keys: tuple[PublicKey, ...]  # sorted
    threshold: int = 1  # keys that must sign a bundle, and the next version
    expires: int | None = None  # seconds since the epoch; None: never

    def __post_init__(self) -> None:
        require_whole("version of a trust file", self.version, 1, MAX_NUMBER)
        require(1 <= len(self.keys) <= MAX_KEYS, "number of keys", len(self.keys), f"1 to {MAX_KEYS}")
        if list(self.keys) != sorted(set(self.keys)):
            raise InvalidInput("keys of a trust file must be sorted and differ from each other")
        require_whole("threshold", self.threshold, 1, len(self.keys))
        if self.expires is not None:
            require_whole("expires", self.expires, 1, MAX_NUMBER)

    def __str__(self) -> str:
        return f"version {self.version} of the trust file"

    def signers(self, envelope: Envelope) -> frozenset[PublicKey]:
        """Return this file's keys that have signed; InvalidInput if one of these signatures is not the key's."""
        return envelope.signers(self.keys)

    def accepts(self, envelope: Envelope) -> bool:
        """Return whether enough keys have signed."""
        return len(self.signers(envelope)) >= self.threshold

    def to_document(self) -> dict[str, Any]:
        """Return JSON values."""
        keys = [canonical.encode_bytes(key.raw) for key in self.keys]
        return {"version": self.version, "keys": keys, "threshold": self.threshold, "expires": self.expires}

    @classmethod
    def from_document(cls, document: object) -> Trust:
        """Read what `to_document` returned; InvalidInput says what is wrong."""
        expires = document.get("expires") if isinstance(document, dict) else None
        types = {"version": int, "keys": list, "threshold": int, "expires": type(None) if expires is None else int}
        read = canonical.fields(document, _SUBJECT, types)
        keys = tuple(PublicKey(canonical.decode_bytes(key, f"a key of {_SUBJECT}")) for key in read["keys"])
        return cls(version=read["version"], keys=keys, threshold=read["threshold"], expires=expires)

    def to_bytes(self) -> bytes:
        """Return the canonical form."""
        return canonical.encode(self.to_document())

    @classmethod
    def from_bytes(cls, content: bytes) -> Trust:
        """Read the canonical form; InvalidInput says what is wrong."""
        return cls.from_document(canonical.decode(content, _SUBJECT))

    def unsigned(self) -> Envelope:
        """Return an envelope to be signed."""
        return Envelope(kind=KIND, payload=self.to_bytes())


@dataclass(frozen=True, slots=True)
class TrustChain:
    """Versions of a trust file, oldest first, each in an envelope; nothing is verified before `verify` or `follow`."""

    envelopes: tuple[Envelope, ...]

    @property
    def newest(self) -> Trust:
        """The newest version, not verified."""
        return Trust.from_bytes(self.envelopes[-1].payload)

    def verify(self) -> Trust:
        """Return the newest version; UntrustedBundle names the first that its predecessor does not vouch for."""
        return self._verified()[-1]

    def follow(self, pinned: Trust) -> Trust:
        """Return the newer of a trusted version and this chain's newest, which must descend from it.

        Raises UntrustedBundle if the chain is broken, lacks the trusted version, or has another one in its place.
        """
        versions = {trust.version: trust for trust in self._verified()}
        newest = max(versions)
        if newest < pinned.version:
            return pinned
        if pinned.version not in versions:
            raise UntrustedBundle(
                f"the signature's trust file lacks version {pinned.version}, which is trusted here; it has later ones",
                field="trusted version",
                value=pinned.version,
            )
        if versions[pinned.version] != pinned:
            raise UntrustedBundle(
                f"version {pinned.version} in the signature's trust file differs from the one that is trusted here",
                field="version",
                value=pinned.version,
            )
        return versions[newest]

    def _verified(self) -> list[Trust]:
        verified: list[Trust] = []
        for envelope in self.envelopes:
            try:
                trust = Trust.from_bytes(envelope.payload)
                _require_successor(verified[-1] if verified else trust, trust, envelope)
            except InvalidInput as error:
                raise UntrustedBundle(f"the signature's trust file is invalid: {error}") from error
            verified.append(trust)
        return verified

    def to_document(self) -> list[Any]:
        """Return JSON values."""
        return [envelope.to_document() for envelope in self.envelopes]

    @classmethod
    def from_document(cls, document: object) -> TrustChain:
        """Read what `to_document` returned; InvalidInput says what is wrong."""
        listed = canonical.items(document, _SUBJECT, MAX_VERSIONS)
        chain = cls(tuple(Envelope.from_document(entry, KIND, _SUBJECT) for entry in listed))
        Trust.from_bytes(chain.envelopes[-1].payload)
        return chain

    def to_bytes(self) -> bytes:
        """Return the canonical form."""
        return canonical.encode(self.to_document())

    @classmethod
    def from_bytes(cls, content: bytes) -> TrustChain:
        """Read the canonical form; InvalidInput says what is wrong."""
        return cls.from_document(canonical.decode(content, _SUBJECT))


def _require_successor(predecessor: Trust, trust: Trust, envelope: Envelope) -> None:
    """Raise unless the version follows its predecessor (or is the chain's first) and enough keys of both signed it."""
    if trust is not predecessor and trust.version != predecessor.version + 1:
        raise UntrustedBundle(
            f"{trust} follows version {predecessor.version}; versions of a trust file must be consecutive"
        )
    for signing in (predecessor, trust):
        if not signing.accepts(envelope):
            whose = "its own keys" if signing is trust else "its predecessor's keys"
            raise UntrustedBundle(
                f"{trust} is not signed by {signing.threshold} of {whose}", field="threshold", value=signing.threshold
            )
