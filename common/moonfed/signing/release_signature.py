"""Signatures of files that are released together, such as a model with its configuration, labels and card.

The format is the OpenSSF model signing specification's: an in-toto statement with the digest of every file, in a DSSE
envelope, in a Sigstore bundle. Keys are Ed25519, as bundles have them, or on the curves P-256, P-384 and P-521, whose
signatures others can verify with the package model-signing.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from moonfed.errors import InvalidInput, UntrustedRelease
from moonfed.files import read_regular, require_file
from moonfed.signing.envelope import Envelope, has_small_order
from moonfed.signing.key_files import MAX_KEY_BYTES

SIGNATURE_FILE = "model.sig"
MAX_BYTES = 1 << 20  # of a signature
_BUNDLE = "application/vnd.dev.sigstore.bundle.v0.3+json"
_PAYLOAD = "application/vnd.in-toto+json"
_STATEMENT = "https://in-toto.io/Statement/v1"
_PREDICATE = "https://model_signing/signature/v1.0"
_HASHES: Mapping[str, type[hashes.HashAlgorithm]] = {
    "secp256r1": hashes.SHA256,
    "secp384r1": hashes.SHA384,
    "secp521r1": hashes.SHA512,
}
_KEYS = "Ed25519, P-256, P-384 or P-521"
PrivateKey: TypeAlias = "Ed25519PrivateKey | ec.EllipticCurvePrivateKey"
PublicKey: TypeAlias = "Ed25519PublicKey | ec.EllipticCurvePublicKey"


@dataclass(frozen=True, slots=True)
class ReleaseKey:
    """A public key that signs releases."""

    key: PublicKey

    @property
    def id(self) -> str:
        """The sha256 of the key in PEM, as in the specification."""
        pem = self.key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        return hashlib.sha256(pem).hexdigest()

    def verifies(self, signature: bytes, message: bytes) -> bool:
        """Return whether this key made the signature."""
        try:
            if isinstance(self.key, Ed25519PublicKey):
                self.key.verify(signature, message)
            else:
                self.key.verify(signature, message, ec.ECDSA(_HASHES[self.key.curve.name]()))
        except InvalidSignature:
            return False
        return True


def read_private_key(path: Path) -> PrivateKey:
    """Read a private key in PEM; raise NotFound, or InvalidInput for one that cannot sign releases."""
    require_file("sign", path)
    try:
        key = serialization.load_pem_private_key(read_regular(path, MAX_KEY_BYTES), None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise _unusable(path, "a private key in PEM without a password, of") from error
    if isinstance(key, Ed25519PrivateKey) or (
        isinstance(key, ec.EllipticCurvePrivateKey) and key.curve.name in _HASHES
    ):
        return key
    raise _unusable(path, "a private key in PEM without a password, of")


def read_release_key(path: Path) -> ReleaseKey:
    """Read a public key in PEM; raise NotFound, or InvalidInput for one that cannot sign releases."""
    require_file("verify-key", path)
    try:
        key = serialization.load_pem_public_key(read_regular(path, MAX_KEY_BYTES))
    except (ValueError, UnsupportedAlgorithm) as error:
        raise _unusable(path, "a public key in PEM, of") from error
    if isinstance(key, Ed25519PublicKey) and has_small_order(key.public_bytes_raw()):
        raise InvalidInput(
            field="key", value=path, rest="; it must not be a point of small order, for which anybody can sign"
        )
    if isinstance(key, Ed25519PublicKey) or (isinstance(key, ec.EllipticCurvePublicKey) and key.curve.name in _HASHES):
        return ReleaseKey(key)
    raise _unusable(path, "a public key in PEM, of")


def release_key(key: PrivateKey) -> ReleaseKey:
    """Return the public half of a private key."""
    return ReleaseKey(key.public_key())


def sign_release(files: Mapping[str, bytes], subject: str, key: PrivateKey) -> bytes:
    """Sign files under a subject, such as "digits/7"; the signature is not valid for another subject."""
    digests = {name: hashlib.sha256(files[name]).digest() for name in sorted(files)}
    statement = {
        "_type": _STATEMENT,
        "subject": [{"name": subject, "digest": {"sha256": hashlib.sha256(b"".join(digests.values())).hexdigest()}}],
        "predicateType": _PREDICATE,
        "predicate": {
            "serialization": {
                "method": "files",
                "hash_type": "sha256",
                "allow_symlinks": False,
                "ignore_paths": [SIGNATURE_FILE],
            },
            "resources": [
                {"name": name, "algorithm": "sha256", "digest": digest.hex()} for name, digest in digests.items()
            ],
        },
    }
    envelope = Envelope(kind=_PAYLOAD, payload=json.dumps(statement).encode())
    message = envelope.signed_bytes
    if isinstance(key, Ed25519PrivateKey):
        signature = key.sign(message)
    else:
        signature = key.sign(message, ec.ECDSA(_HASHES[key.curve.name]()))
    document = {
        "mediaType": _BUNDLE,
        "verificationMaterial": {"publicKey": {"hint": release_key(key).id}, "tlogEntries": []},
        "dsseEnvelope": {
            "payload": base64.b64encode(envelope.payload).decode(),
            "payloadType": _PAYLOAD,
            "signatures": [{"sig": base64.b64encode(signature).decode(), "keyid": ""}],
        },
    }
    return json.dumps(document).encode()


def verify_release(
    files: Mapping[str, bytes], subject: str, signature: bytes | None, keys: Sequence[ReleaseKey]
) -> None:
    """Verify that one of the keys signed exactly these files under this subject; raise UntrustedRelease otherwise."""
    require_digests(files, signed_digests(subject, signature, keys), subject)


def require_digests(files: Mapping[str, bytes], signed: Mapping[str, str], subject: str) -> None:
    """Raise UntrustedRelease, naming a file, unless files have exactly the names and digests that were signed."""
    for name in sorted(signed.keys() | files.keys()):
        if name not in files:
            raise UntrustedRelease(
                f"{subject} lacks {name}, which was signed with it", field="missing file", value=name
            )
        if name not in signed:
            raise UntrustedRelease(
                f"{subject} has {name}, which was not signed with it", field="unsigned file", value=name
            )
        if hashlib.sha256(files[name]).hexdigest() != signed[name]:
            raise UntrustedRelease(f"{name} of {subject} was changed after it was signed", field="file", value=name)


def claimed_key(signature: bytes) -> str:
    """Return the id of the key that claims to have made a signature; "" if it cannot be read."""
    try:
        return str(json.loads(signature)["verificationMaterial"]["publicKey"]["hint"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""


def signed_digests(subject: str, signature: bytes | None, keys: Sequence[ReleaseKey]) -> dict[str, str]:
    """Return the sha256 of every file that one of the keys signed under this subject; raise UntrustedRelease."""
    if signature is None:
        raise UntrustedRelease(f"{subject} is not signed: it has no {SIGNATURE_FILE}", field="signature")
    try:
        document = json.loads(signature)
        envelope = document["dsseEnvelope"]
        claimed = str(document["verificationMaterial"]["publicKey"]["hint"])
        payload = base64.b64decode(envelope["payload"], validate=True)
        values = [base64.b64decode(each["sig"], validate=True) for each in envelope["signatures"]]
        kind = envelope["payloadType"]
    except (ValueError, KeyError, TypeError, RecursionError, binascii.Error) as error:
        raise UntrustedRelease(f"the signature of {subject} cannot be read") from error
    message = Envelope(kind=_PAYLOAD, payload=payload).signed_bytes
    own = [key for key in keys if key.id == claimed]
    if not own:
        known = ", ".join(key.id[:12] for key in keys)
        raise UntrustedRelease(
            f"{subject} is signed by the key {claimed[:12]!r}, which is not trusted; trusted: {known}",
            field="key",
            value=claimed[:12],
        )
    if kind != _PAYLOAD or len(values) != 1 or not own[0].verifies(values[0], message):
        raise UntrustedRelease(f"the signature of {subject} is not valid: it was changed")
    return _digests(payload, subject)


def _digests(payload: bytes, subject: str) -> dict[str, str]:
    """Read a statement that a trusted key signed; it may still be about something else."""
    try:
        statement: dict[str, Any] = json.loads(payload)
        named = [each["name"] for each in statement["subject"]]
        resources = statement["predicate"]["resources"]
        kinds = statement["_type"], statement["predicateType"]
        digests = {each["name"]: each["digest"] for each in resources if each["algorithm"] == "sha256"}
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UntrustedRelease(f"the signed statement about {subject} cannot be read") from error
    if kinds != (_STATEMENT, _PREDICATE) or len(digests) != len(resources):
        raise UntrustedRelease(f"the signed statement about {subject} is not a model signature")
    if named != [subject]:
        raise UntrustedRelease(
            f"{subject} has the signature of {', '.join(map(repr, named))}", field="signed name", value=named
        )
    return digests


def _unusable(path: Path, allowed: str) -> InvalidInput:
    return InvalidInput(field="key", value=path, allowed=f"{allowed} {_KEYS}")
