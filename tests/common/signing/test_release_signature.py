from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from moonfed.errors import InvalidInput, NotFound, UntrustedRelease
from moonfed.signing.key_files import create_keys
from moonfed.signing.release_signature import (
    PrivateKey,
    ReleaseKey,
    read_private_key,
    read_release_key,
    release_key,
    sign_release,
    verify_release,
)
from tests.support.refusals import refused

FILES = {"model.onnx": b"weights", "config.pbtxt": b"name: x", "labels.txt": b"cat"}
KEYS: dict[str, PrivateKey] = {
    "Ed25519": ed25519.Ed25519PrivateKey.generate(),
    **{curve.name: ec.generate_private_key(curve) for curve in (ec.SECP256R1(), ec.SECP384R1(), ec.SECP521R1())},
}
KEY = KEYS["Ed25519"]
TRUSTED = [release_key(KEY)]
SIGNATURE = sign_release(FILES, "digits/7", KEY)


@pytest.mark.parametrize("name", KEYS)
def test_signed_files_are_verified_with_every_kind_of_key(name: str) -> None:
    signature = sign_release(FILES, "digits/7", KEYS[name])
    verify_release(FILES, "digits/7", signature, [release_key(key) for key in KEYS.values()])
    others = [release_key(key) for other, key in KEYS.items() if other != name]
    with refused(UntrustedRelease, "key"):
        verify_release(FILES, "digits/7", signature, others)


@pytest.mark.parametrize(
    ("files", "named"),
    [
        ({**FILES, "model.onnx": b"weightz"}, ("file", "model.onnx")),
        ({**FILES, "labels.txt": b"dog"}, ("file", "labels.txt")),
        ({**FILES, "more": b""}, ("unsigned file", "more")),
        ({"model.onnx": b"weights", "labels.txt": b"cat"}, ("missing file", "config.pbtxt")),
        ({"model.onnx": b"cat", "config.pbtxt": b"name: x", "labels.txt": b"weights"}, ("file", "labels.txt")),
    ],
)
def test_other_files_are_rejected_by_name(files: dict[str, bytes], named: tuple[str, object]) -> None:
    with refused(UntrustedRelease, *named):
        verify_release(files, "digits/7", SIGNATURE, TRUSTED)


def test_a_signature_is_of_one_model_and_one_version() -> None:
    for subject in ("digits/8", "animals/7"):
        with refused(UntrustedRelease, "signed name", ["digits/7"]):
            verify_release(FILES, subject, SIGNATURE, TRUSTED)


def changed(**fields: object) -> bytes:
    document = json.loads(SIGNATURE)
    document["dsseEnvelope"] |= fields
    return json.dumps(document).encode()


@pytest.mark.parametrize(
    ("signature", "sentence"),
    [
        (None, "digits/7 is not signed: it has no model.sig"),
        (b"", "cannot be read"),
        (b"[" * 100_000, "cannot be read"),
        (b"{}", "cannot be read"),
        (changed(payload="*"), "cannot be read"),
        (changed(payload=base64.b64encode(b"{}").decode()), "is not valid: it was changed"),
        (changed(payloadType="text/plain"), "is not valid: it was changed"),
        (changed(signatures=[]), "is not valid: it was changed"),
        (changed(signatures=[{"sig": base64.b64encode(bytes(64)).decode()}]), "is not valid: it was changed"),
    ],
)
def test_damaged_signatures_are_rejected(signature: bytes | None, sentence: str) -> None:
    with pytest.raises(UntrustedRelease, match=sentence):
        verify_release(FILES, "digits/7", signature, TRUSTED)


STATEMENT = json.loads(base64.b64decode(json.loads(SIGNATURE)["dsseEnvelope"]["payload"]))
PREDICATE = STATEMENT["predicate"]
HASHED_OTHERWISE = {"name": "more", "algorithm": "blake2b", "digest": "00"}


@pytest.mark.parametrize(
    ("payload", "sentence"),
    [
        (b"{}", "cannot be read"),
        (b"nonsense", "cannot be read"),
        (json.dumps(STATEMENT | {"_type": "https://example.org"}).encode(), "is not a model signature"),
        (json.dumps(STATEMENT | {"predicateType": "https://slsa.dev/provenance/v1"}).encode(), "is not a model sig"),
        (
            json.dumps(
                STATEMENT | {"predicate": PREDICATE | {"resources": [*PREDICATE["resources"], HASHED_OTHERWISE]}}
            ).encode(),
            "is not a model signature",
        ),
    ],
    ids=["empty", "nonsense", "type", "predicate", "hash"],
)
def test_a_trusted_keys_statement_about_something_else_is_rejected(payload: bytes, sentence: str) -> None:
    document = json.loads(SIGNATURE)
    kind = document["dsseEnvelope"]["payloadType"].encode()
    message = b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)
    assert isinstance(KEY, ed25519.Ed25519PrivateKey)
    document["dsseEnvelope"]["payload"] = base64.b64encode(payload).decode()
    document["dsseEnvelope"]["signatures"][0]["sig"] = base64.b64encode(KEY.sign(message)).decode()
    with pytest.raises(UntrustedRelease, match=sentence):
        verify_release(FILES, "digits/7", json.dumps(document).encode(), TRUSTED)


def test_keys_of_bundles_sign_releases_too(tmp_path: Path) -> None:
    path = create_keys(tmp_path)
    signature = sign_release(FILES, "digits/7", read_private_key(path))
    verify_release(FILES, "digits/7", signature, [read_release_key(path.with_suffix(".pub"))])


def write(path: Path, key: object, password: bytes | None = None) -> Path:
    protection = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    path.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, protection))  # type: ignore[attr-defined]
    return path


def test_keys_that_cannot_sign_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    with refused(NotFound, "sign"):
        read_private_key(tmp_path / "absent.pem")
    with refused(NotFound, "verify-key"):
        read_release_key(tmp_path / "absent.pub")
    unusable = "must be a private key in PEM without a password, of Ed25519, P-256, P-384 or P-521"
    for key in (ec.generate_private_key(ec.SECP256K1()), rsa.generate_private_key(65537, 2048)):
        with pytest.raises(InvalidInput, match=unusable):
            read_private_key(write(path, key))
        public = key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        (tmp_path / "key.pub").write_bytes(public)
        with refused(InvalidInput, "key"):
            read_release_key(tmp_path / "key.pub")
    with pytest.raises(InvalidInput, match=unusable):
        read_private_key(write(path, KEY, b"secret"))
    path.write_bytes(b"no key")
    with pytest.raises(InvalidInput, match=unusable):
        read_private_key(path)
    with refused(InvalidInput, "key"):
        read_release_key(path)


def test_a_key_for_which_anybody_can_sign_is_rejected(tmp_path: Path) -> None:
    weak = ed25519.Ed25519PublicKey.from_public_bytes((1).to_bytes(32, "little"))
    (tmp_path / "key.pub").write_bytes(
        weak.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    with pytest.raises(InvalidInput, match="point of small order"):
        read_release_key(tmp_path / "key.pub")


def test_a_key_is_named_by_the_hash_of_its_pem() -> None:
    assert len({key.id for key in map(release_key, KEYS.values())}) == len(KEYS)
    assert isinstance(TRUSTED[0], ReleaseKey)
