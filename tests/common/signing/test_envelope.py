from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from moonfed.errors import InvalidInput
from moonfed.signing.envelope import Envelope, PublicKey, Signature
from tests.support.refusals import refused
from tests.support.signatures import key

KIND = "application/vnd.moonfed.tested+json"
ENVELOPE = Envelope(kind=KIND, payload=b"hello").sign(key(1))


def test_the_bytes_that_are_signed_are_those_of_the_dsse_specification() -> None:
    """The example of https://github.com/secure-systems-lab/dsse/blob/master/protocol.md."""
    envelope = Envelope(kind="http://example.com/HelloWorld", payload=b"hello world")
    assert envelope.signed_bytes == b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"


def test_a_signature_is_ed25519_of_rfc_8032() -> None:
    """Test 2 of RFC 8032, 7.1: its key, message and signature."""
    secret = bytes.fromhex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb")
    public = PublicKey(bytes.fromhex("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c"))
    signature = bytes.fromhex(
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
        "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
    )
    assert PublicKey.of(Ed25519PrivateKey.from_private_bytes(secret)) == public
    assert public.verifies(signature, b"\x72")
    assert not public.verifies(signature, b"\x73")
    assert not PublicKey(bytes([2, *bytes(31)])).verifies(signature, b"\x72")


_PRIME = 2**255 - 19
_D = -121665 * pow(121666, -1, _PRIME) % _PRIME
_TORSION_Y = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
SMALL_ORDER = [
    (y | sign << 255).to_bytes(32, "little")
    for y in (0, 1, _PRIME - 1, _TORSION_Y, _PRIME - _TORSION_Y, _PRIME, _PRIME + 1)
    for sign in (0, 1)
]


def eightfold(raw: bytes) -> tuple[int, int]:
    """Return eight times a point, by the curve's equation and addition law (RFC 8032, 5.1)."""
    y = (int.from_bytes(raw, "little") & ((1 << 255) - 1)) % _PRIME
    square = (y * y - 1) * pow(_D * y * y + 1, -1, _PRIME) % _PRIME
    x = pow(square, (_PRIME + 3) // 8, _PRIME)
    if (x * x - square) % _PRIME:
        x = x * pow(2, (_PRIME - 1) // 4, _PRIME) % _PRIME
    assert (x * x - square) % _PRIME == 0
    for _ in range(3):
        k = _D * x * x * y * y
        x, y = 2 * x * y * pow(1 + k, -1, _PRIME) % _PRIME, (y * y + x * x) * pow(1 - k, -1, _PRIME) % _PRIME
    return x, y


@pytest.mark.parametrize("raw", SMALL_ORDER, ids=[raw.hex()[-8:] for raw in SMALL_ORDER])
def test_a_key_of_small_order_is_rejected(raw: bytes) -> None:
    assert eightfold(raw) == (0, 1), "the neutral element"
    with refused(InvalidInput, "point of a public key"):
        PublicKey(raw)


def test_for_a_key_of_small_order_anybody_can_sign() -> None:
    """The reason for the rejection: the neutral element as key and as signature, which fits every message."""
    neutral = (1).to_bytes(32, "little")
    Ed25519PublicKey.from_public_bytes(neutral).verify(neutral + bytes(32), b"anything")


def test_keys_of_full_order_are_accepted() -> None:
    for number in range(1, 9):
        raw = PublicKey.of(key(number)).raw
        assert eightfold(raw) != (0, 1)


def test_only_keys_that_signed_are_signers() -> None:
    one, two = PublicKey.of(key(1)), PublicKey.of(key(2))
    assert ENVELOPE.signers([one, two]) == {one}
    assert ENVELOPE.signers([two]) == set()
    assert ENVELOPE.sign(key(2)).signers([two, one]) == {one, two}


def test_signing_again_replaces_the_signature() -> None:
    assert ENVELOPE.sign(key(1)) == ENVELOPE


@pytest.mark.parametrize("changed", [{"payload": b"hellO"}, {"kind": KIND + "x"}])
def test_a_changed_payload_or_type_has_no_valid_signature(changed: dict[str, Any]) -> None:
    with refused(InvalidInput, "signature of key"):
        replace(ENVELOPE, **changed).signers([PublicKey.of(key(1))])


def test_a_signature_under_the_name_of_another_key_is_rejected() -> None:
    theirs = replace(ENVELOPE.signatures[0], key=PublicKey.of(key(2)).id)
    with pytest.raises(InvalidInput, match="does not match"):
        replace(ENVELOPE, signatures=(*ENVELOPE.signatures, theirs)).signers([PublicKey.of(key(2))])


def test_an_envelope_is_read_as_it_was_written() -> None:
    document = ENVELOPE.to_document()
    assert set(document) == {"payload", "payloadType", "signatures"}
    assert base64.b64decode(document["payload"]) == b"hello"
    assert Envelope.from_document(document, KIND, "tested") == ENVELOPE


def signatures(count: int) -> list[dict[str, str]]:
    return [{"keyid": f"{number:064x}", "sig": base64.b64encode(bytes(64)).decode()} for number in range(count)]


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"payloadType": "application/json"}, "has format 'application"),
        ({"payload": "%"}, "tested is not base64"),
        ({"signatures": []}, "signatures of tested must be a list of 1 to 16"),
        ({"signatures": signatures(17)}, "signatures of tested must be a list of 1 to 16"),
        ({"signatures": [*signatures(2), signatures(1)[0]]}, "two signatures of one key"),
        ({"signatures": [{"keyid": "0" * 64, "sig": "QUI="}]}, "has 2 bytes; it must have 64"),
        ({"signatures": [{**signatures(1)[0], "keyid": "\n" * 64}]}, "not a sha256"),
        ({"signatures": [{"keyid": "0" * 64}]}, "exactly the fields keyid, sig"),
        ({"signatures": [1]}, "exactly the fields keyid, sig"),
        ({"more": 1}, "exactly the fields"),
    ],
)
def test_a_malformed_envelope_is_rejected(changed: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        Envelope.from_document(ENVELOPE.to_document() | changed, KIND, "tested")


def test_a_public_key_has_32_bytes() -> None:
    with pytest.raises(InvalidInput, match="31 bytes; it must have 32"):
        PublicKey(bytes(31))
    assert Signature("0" * 64, b"").value == b""
