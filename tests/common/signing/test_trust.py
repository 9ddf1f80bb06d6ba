from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from moonfed.errors import InvalidInput, UntrustedBundle
from moonfed.signing import canonical
from moonfed.signing.envelope import PublicKey
from moonfed.signing.trust import Trust, TrustChain
from tests.support.refusals import refused
from tests.support.signatures import CHAIN, ROTATED, TRUST, issued, key, trust


def chain(*envelopes: Any) -> TrustChain:
    return TrustChain(tuple(envelopes))


def test_a_trust_file_is_read_as_it_was_written() -> None:
    for given in (TRUST, trust(1, 2, 3, version=7, threshold=2, expires=2_000_000_000)):
        assert Trust.from_bytes(given.to_bytes()) == given
    assert TrustChain.from_bytes(ROTATED.to_bytes()) == ROTATED
    assert ROTATED.newest == trust(2, version=2)


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"version": 0}, "version of a trust file is 0"),
        ({"keys": []}, "number of keys is 0"),
        ({"keys": ["QUI="]}, "a public key has 2 bytes"),
        ({"keys": [7]}, "a key of a trust file is not base64"),
        ({"keys": [canonical.encode_bytes(bytes(32))]}, "a public key is a point of small order"),
        ({"keys": [canonical.encode_bytes(PublicKey.of(key(1)).raw)] * 2}, "must be sorted and differ"),
        ({"threshold": 0}, "threshold is 0"),
        ({"threshold": 2}, "threshold is 2"),
        ({"expires": 0}, "expires is 0"),
        ({"expires": "never"}, "'expires' of the wrong type"),
        ({"more": 1}, "exactly the fields"),
    ],
)
def test_a_malformed_trust_file_is_rejected(changed: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        Trust.from_bytes(canonical.encode(TRUST.to_document() | changed))


def test_a_chain_has_at_most_64_versions() -> None:
    with refused(InvalidInput, "a trust file"):
        TrustChain.from_document([*CHAIN.to_document()] * 65)
    with refused(InvalidInput, "a trust file"):
        TrustChain.from_bytes(b"[]")


def test_a_rotation_that_old_and_new_keys_signed_is_followed() -> None:
    assert ROTATED.verify() == trust(2, version=2)
    assert ROTATED.follow(TRUST) == trust(2, version=2)


def test_an_older_chain_does_not_lead_back() -> None:
    assert CHAIN.follow(trust(2, version=2)) == trust(2, version=2)


def test_a_chain_may_begin_with_the_trusted_version() -> None:
    shortened = chain(*ROTATED.envelopes[1:])
    assert shortened.follow(trust(2, version=2)) == trust(2, version=2)
    with refused(UntrustedBundle, "trusted version", 1):
        shortened.follow(TRUST)


def test_a_chain_of_strangers_is_rejected() -> None:
    theirs = chain(issued(trust(9), 9))
    assert theirs.verify() == trust(9)
    with refused(UntrustedBundle, "version", 1):
        theirs.follow(TRUST)


@pytest.mark.parametrize(
    ("broken", "problem"),
    [
        (chain(issued(TRUST, 2)), "version 1 of the trust file is not signed by 1 of its .* keys"),
        (chain(*CHAIN.envelopes, issued(trust(2, version=2), 2)), "not signed by 1 of its predecessor's keys"),
        (chain(*CHAIN.envelopes, issued(trust(2, version=2), 1)), "not signed by 1 of its own keys"),
        (
            chain(*CHAIN.envelopes, issued(trust(2, version=3), 1, 2)),
            "follows version 1; versions of a trust file must be consecutive",
        ),
        (
            chain(*CHAIN.envelopes, issued(trust(2), 1, 2)),
            "follows version 1; versions of a trust file must be consecutive",
        ),
        (
            chain(issued(trust(1, 2, threshold=2), 1, 2), issued(trust(3, version=2), 1, 3)),
            "not signed by 2 of its predecessor's keys",
        ),
        (chain(*CHAIN.envelopes, issued(trust(1, 2, version=2, threshold=2), 1)), "not signed by 2 of its own keys"),
        (
            chain(*CHAIN.envelopes, replace(ROTATED.envelopes[1], payload=trust(9, version=2).to_bytes())),
            "something was altered",
        ),
        (chain(replace(CHAIN.envelopes[0], payload=b"{}")), "exactly the fields"),
    ],
)
def test_a_broken_chain_is_rejected(broken: TrustChain, problem: str) -> None:
    with pytest.raises(UntrustedBundle, match=problem):
        broken.verify()
    with pytest.raises(UntrustedBundle, match=problem):
        broken.follow(TRUST)
