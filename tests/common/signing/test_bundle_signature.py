from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import pytest

from moonfed.errors import UntrustedBundle
from moonfed.signing.bundle_signature import BundleSignature, Verified, moment, require_name, verify
from moonfed.signing.trust import Trust, TrustChain
from tests.support.refusals import refused
from tests.support.signatures import CHAIN, ROTATED, TRUST, issued, signature, trust

MANIFEST = b"a manifest"
DIGEST = hashlib.sha256(MANIFEST).hexdigest()
NOW = 1_800_000_000.0


def verified(given: BundleSignature | bytes, pinned: Trust | None = TRUST, **others: Any) -> Verified:
    content = given if isinstance(given, bytes) else given.to_bytes()
    return verify(content, DIGEST, trust=pinned, **{"now": NOW, **others})


def signed(**changed: Any) -> BundleSignature:
    return signature(MANIFEST, **{"expires": NOW + 1, **changed})


def test_a_signature_of_a_trusted_key_is_accepted() -> None:
    found = verified(signed(version=5))
    assert (found.statement.name, found.statement.version, found.trust) == ("tested", 5, TRUST)
    assert BundleSignature.from_bytes(signed().to_bytes()) == signed()


def test_a_bundle_that_nobody_signed_is_rejected() -> None:
    with pytest.raises(UntrustedBundle, match="the bundle is not signed; sign it with: moonfed-export sign BUNDLE"):
        verified(b"")


def test_a_stranger_is_rejected_although_its_own_chain_agrees() -> None:
    theirs = signed(keys=[9], chain=TrustChain((issued(trust(9), 9),)))
    assert verified(theirs, None).trust == trust(9)
    with pytest.raises(UntrustedBundle, match="version 1 in the signature's trust file differs"):
        verified(theirs)
    with pytest.raises(UntrustedBundle, match=r"signed by [0-9a-f]{12}, which is not trusted; trusted: [0-9a-f]{12}"):
        verified(signed(keys=[9]))


def test_every_altered_byte_is_rejected() -> None:
    content = signed(chain=ROTATED, keys=[2]).to_bytes()
    for place in range(len(content)):
        altered = content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]
        with pytest.raises(UntrustedBundle):
            verified(altered)


def test_an_expired_signature_is_rejected() -> None:
    assert verified(signed(expires=NOW + 1))
    with pytest.raises(UntrustedBundle, match="signature expired on 2027-01-15 08:00 UTC; sign the bundle again"):
        verified(signed(expires=NOW))


def test_an_expired_trust_file_is_rejected() -> None:
    short = trust(1, expires=int(NOW))
    given = signed(chain=TrustChain((issued(short, 1),)))
    assert verified(given, short, now=NOW - 1)
    with pytest.raises(UntrustedBundle, match="version 1 of the trust file expired on 2027-01-15 08:00 UTC"):
        verified(given, short)


def test_a_signature_of_another_manifest_is_rejected() -> None:
    with pytest.raises(UntrustedBundle, match=r"is for another manifest: [0-9a-f]{12} instead of [0-9a-f]{12}"):
        verified(signature(b"another manifest", expires=NOW + 1))


def test_an_older_version_than_one_accepted_is_rejected() -> None:
    for accepted in ({}, {"tested": 4}, {"tested": 5}, {"another": 6}):
        assert verified(signed(version=5), accepted=accepted)
    with pytest.raises(UntrustedBundle, match="version 5 of bundle 'tested' is older than version 6, which was acc"):
        verified(signed(version=5), accepted={"tested": 6})


def test_too_few_signatures_are_rejected() -> None:
    both = trust(1, 2, threshold=2)
    joint = TrustChain((issued(both, 1, 2),))
    assert verified(signed(keys=[1, 2], chain=joint), both)
    with pytest.raises(UntrustedBundle, match="has 1 signature of trusted keys; it needs 2"):
        verified(signed(keys=[1], chain=joint), both)
    with pytest.raises(UntrustedBundle, match="has 1 signature of trusted keys; it needs 2"):
        verified(signed(keys=[1, 9], chain=joint), both)
    by_stranger = signed(keys=[9], chain=joint)
    renamed = replace(by_stranger.envelope.signatures[0], key=both.keys[0].id)
    with pytest.raises(UntrustedBundle, match="something was altered"):
        verified(replace(by_stranger, envelope=replace(by_stranger.envelope, signatures=(renamed,))), both)


def test_a_rotation_is_followed_and_the_old_key_is_no_longer_accepted() -> None:
    assert verified(signed(keys=[2], chain=ROTATED)).trust == trust(2, version=2)
    with pytest.raises(UntrustedBundle, match="which is not trusted"):
        verified(signed(keys=[1], chain=ROTATED))
    with pytest.raises(UntrustedBundle, match="which is not trusted"):  # without the newer version
        verified(signed(keys=[1], chain=CHAIN), trust(2, version=2))


def test_a_rotation_that_the_old_keys_did_not_sign_is_rejected() -> None:
    theirs = TrustChain((*CHAIN.envelopes, issued(trust(9, version=2), 9)))
    with pytest.raises(UntrustedBundle, match="version 2 of the trust file is not signed by 1 of its predecessor's"):
        verified(signed(keys=[9], chain=theirs))


def test_a_name_must_be_the_signed_one() -> None:
    require_name(signed().statement, "tested")
    with refused(UntrustedBundle, "name", "other"):
        require_name(signed().statement, "other")


def test_a_moment_beyond_the_calendar_is_a_number() -> None:
    assert moment(0) == "1970-01-01 00:00 UTC"
    assert moment(float((1 << 53) - 1)) == "9007199254740991 s after 1970"
