"""Signed envelopes: DSSE (Dead Simple Signing Envelope, protocol version 1) with Ed25519.

https://github.com/secure-systems-lab/dsse. The signature covers the payload's type, too, so that no signed document can
be passed off as one of another kind.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from moonfed.errors import InvalidInput
from moonfed.format_version import require_readable
from moonfed.signing import canonical

KEY_BYTES = 32
SIGNATURE_BYTES = 64
MAX_SIGNATURES = 16
KEY_ID = re.compile(r"[0-9a-f]{64}")
ID_SHOWN = 12  # characters of a key's id in messages
# The y coordinates of the curve's points of order 1, 2, 4 and 8, and the two that have a second encoding, beyond the
# field's prime: with such a key, anybody can make signatures. libsodium rejects the same ones.
_PRIME = 2**255 - 19
_ORDER_8 = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
_SMALL_ORDER = frozenset({0, 1, _PRIME - 1, _ORDER_8, _PRIME - _ORDER_8, _PRIME, _PRIME + 1})


@dataclass(frozen=True, slots=True, order=True)
class PublicKey:
    """An Ed25519 public key: its 32 raw bytes."""

    raw: bytes

    def __post_init__(self) -> None:
        if len(self.raw) != KEY_BYTES:
            raise InvalidInput(f"a public key has {len(self.raw)} bytes; it must have {KEY_BYTES}")
        if has_small_order(self.raw):
            raise InvalidInput(
                "a public key is a point of small order, for which anybody can sign; create another one",
                field="point of a public key",
            )

    @classmethod
    def of(cls, key: Ed25519PrivateKey) -> PublicKey:
        """Return the public half of a private key."""
        return cls(key.public_key().public_bytes_raw())

    @property
    def id(self) -> str:
        """The sha256 of the raw key, in hexadecimal."""
        return hashlib.sha256(self.raw).hexdigest()

    def __str__(self) -> str:
        return self.id[:ID_SHOWN]

    def verifies(self, signature: bytes, message: bytes) -> bool:
        """Return whether this key made the signature."""
        try:
            Ed25519PublicKey.from_public_bytes(self.raw).verify(signature, message)
        except (InvalidSignature, ValueError):  # ValueError: these bytes are not a point on the curve
            return False
        return True


def has_small_order(raw: bytes) -> bool:
    """Return whether an Ed25519 public key is one of the points for which signatures can be made without a key."""
    return int.from_bytes(raw, "little") & ((1 << 255) - 1) in _SMALL_ORDER  # whatever the sign of x


@dataclass(frozen=True, slots=True)
class Signature:
    """A signature, with the id of the key that claims to have made it."""

    key: str
    value: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """A payload with its type and its signatures, none of which has been verified."""

    kind: str  # the payload's media type
    payload: bytes
    signatures: tuple[Signature, ...] = ()

    @property
    def signed_bytes(self) -> bytes:
        """The bytes that are signed: DSSE's pre-authentication encoding of type and payload."""
        kind = self.kind.encode()
        return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(self.payload), self.payload)

    def sign(self, key: Ed25519PrivateKey) -> Envelope:
        """Return the envelope with a signature of this key, in place of an earlier one."""
        own = Signature(PublicKey.of(key).id, key.sign(self.signed_bytes))
        return replace(self, signatures=(*(other for other in self.signatures if other.key != own.key), own))

    def signers(self, keys: Iterable[PublicKey]) -> frozenset[PublicKey]:
        """Return those keys that have signed; InvalidInput if a signature that claims one of them is invalid."""
        values = {signature.key: signature.value for signature in self.signatures}
        signed = frozenset(key for key in keys if key.id in values)
        for key in signed:
            if not key.verifies(values[key.id], self.signed_bytes):
                raise InvalidInput(
                    f"the signature of key {key} does not match: something was altered",
                    field="signature of key",
                    value=key,
                )
        return signed

    def to_document(self) -> dict[str, Any]:
        """Return JSON values, as DSSE names them."""
        return {
            "payload": canonical.encode_bytes(self.payload),
            "payloadType": self.kind,
            "signatures": [
                {"keyid": signature.key, "sig": canonical.encode_bytes(signature.value)}
                for signature in self.signatures
            ],
        }

    @classmethod
    def from_document(cls, document: object, kind: str, subject: str) -> Envelope:
        """Read an envelope with a payload of that type; InvalidInput and VersionMismatch name the subject."""
        read = canonical.fields(document, subject, {"payload": str, "payloadType": str, "signatures": list})
        require_readable(f"the payload of {subject}", read["payloadType"], (kind,))
        listed = canonical.items(read["signatures"], f"the signatures of {subject}", MAX_SIGNATURES)
        signatures = tuple(_signature(entry, subject) for entry in listed)
        if len({signature.key for signature in signatures}) < len(signatures):
            raise InvalidInput(f"{subject} has two signatures of one key")
        return cls(kind=kind, payload=canonical.decode_bytes(read["payload"], subject), signatures=signatures)


def _signature(document: object, subject: str) -> Signature:
    read = canonical.fields(document, f"a signature of {subject}", {"keyid": str, "sig": str})
    value = canonical.decode_bytes(read["sig"], f"a signature of {subject}")
    if len(value) != SIGNATURE_BYTES:
        raise InvalidInput(f"a signature of {subject} has {len(value)} bytes; it must have {SIGNATURE_BYTES}")
    if not KEY_ID.fullmatch(read["keyid"]):
        raise InvalidInput(f"a signature of {subject} has a keyid that is not a sha256 in hexadecimal")
    return Signature(read["keyid"], value)
