"""Bundles on disk are signed, completed by the owner of a second key, and signed again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from moonfed.bundle.files import Bundle, read_bundle, write_bundle
from moonfed.errors import InvalidInput, UntrustedBundle
from moonfed.export.bundle_signing import SigningOptions, resign, sign_new
from moonfed.signing.bundle_signature import BundleSignature, signed_by
from moonfed.signing.key_files import Signer
from moonfed.signing.trust import TrustChain
from tests.support.coordinator import harmless_plan
from tests.support.coordinator import make_bundle as any_bundle
from tests.support.signatures import CHAIN, TRUST, issued, key, trust


def make_bundle() -> Bundle:
    """Make a bundle that devices accept."""
    return any_bundle(plan=harmless_plan())


BOTH = trust(1, 2, threshold=2)
JOINT = TrustChain((issued(BOTH, 1, 2),))
NOW = 1_800_000_000.0


def at(now: float, **fields: float) -> SigningOptions:
    return SigningOptions(clock=lambda: now, **fields)  # type: ignore[arg-type]


def test_a_signature_has_the_time_as_its_version_and_lives_for_a_year() -> None:
    signed = sign_new(make_bundle(), Signer((key(1),), CHAIN), at(NOW + 0.7))
    statement = BundleSignature.from_bytes(signed.bundle.signature).statement
    assert (statement.name, statement.version) == ("digits", int(NOW))
    assert statement.expires == int(NOW + 0.7 + 365 * 24 * 3600)
    assert statement.manifest == make_bundle().ref.sha256
    assert signed.missing == ""
    chosen = sign_new(make_bundle(), Signer((key(1),), CHAIN), at(NOW, version=7, expires_days=0.5))
    statement = BundleSignature.from_bytes(chosen.bundle.signature).statement
    assert (statement.version, statement.expires) == (7, int(NOW) + 12 * 3600)


@pytest.mark.parametrize("days", [0.0, -1.0, float("nan"), 36_501.0])
def test_an_impossible_lifetime_is_rejected(days: float) -> None:
    with pytest.raises(InvalidInput, match="expires-days is"):
        SigningOptions(expires_days=days)


@pytest.mark.parametrize("name", ["bundle", "bundle.zip"])
def test_two_owners_sign_one_after_the_other(tmp_path: Path, name: str) -> None:
    path, check = tmp_path / name, signed_by(BOTH, lambda: NOW)
    first = sign_new(make_bundle(), Signer((key(1),), JOINT), at(NOW))
    assert first.missing == "; it needs 1 more signature: moonfed-export sign"
    write_bundle(path, first.bundle)
    with pytest.raises(UntrustedBundle, match="it needs 2"):
        read_bundle(path, check)
    second = resign(path, Signer((key(2),), JOINT), at(NOW + 100), renew=False)
    assert (second.version, second.signatures, second.missing) == (int(NOW), 2, "")
    assert read_bundle(path, check).ref == make_bundle().ref


def test_a_bundle_is_signed_again_on_request_and_if_a_stranger_signed_it(tmp_path: Path) -> None:
    path = tmp_path / "bundle"
    write_bundle(path, replace(make_bundle(), signature=b""))
    mine = Signer((key(1),), CHAIN)
    assert resign(path, mine, at(NOW), renew=False).version == int(NOW)
    assert resign(path, mine, at(NOW + 1), renew=False).version == int(NOW)
    assert resign(path, mine, at(NOW + 2), renew=True).version == int(NOW) + 2
    theirs = Signer((key(9),), TrustChain((issued(trust(9), 9),)))
    assert resign(path, theirs, at(NOW + 3), renew=False).version == int(NOW) + 3
    assert resign(path, mine, at(NOW + 4), renew=False).version == int(NOW) + 4
    assert read_bundle(path, signed_by(TRUST, lambda: NOW + 5))
