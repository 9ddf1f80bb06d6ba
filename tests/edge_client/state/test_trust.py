"""The device's trust on disk."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from moonfed.edge_client.state.trust import accept, accept_release, bundle_check, describe, load, pin, replace_trust
from moonfed.errors import Corrupt, UntrustedBundle, UntrustedRelease
from moonfed.signing.key_files import write_trust
from moonfed.signing.trust import TrustChain
from tests.support.device_releases import make_release
from tests.support.refusals import refused
from tests.support.signatures import CHAIN, FAR, ROTATED, TRUST, issued, signature, trust

MANIFEST, NOW = b"a manifest", 1_800_000_000.0


def content(**fields: object) -> tuple[bytes, str]:
    made = signature(MANIFEST, **fields)  # type: ignore[arg-type]
    return made.to_bytes(), made.statement.manifest


def test_versions_and_rotations_are_remembered(tmp_path: Path) -> None:
    pin(tmp_path, TRUST)
    accept(tmp_path, *content(version=7), NOW)
    accept(tmp_path, *content(version=2, name="other", keys=[2], chain=ROTATED), NOW)
    held = load(tmp_path)
    assert held
    assert (held.trust, held.accepted) == (trust(2, version=2), {"tested": 7, "other": 2})
    assert stat.S_IMODE((tmp_path / "trust.json").stat().st_mode) == 0o600
    with pytest.raises(UntrustedBundle, match="version 6 of bundle 'tested' is older than version 7"):
        accept(tmp_path, *content(version=6, keys=[2], chain=ROTATED), NOW)
    assert load(tmp_path) == held


def test_a_rejected_bundle_changes_nothing(tmp_path: Path) -> None:
    pin(tmp_path, TRUST)
    before = (tmp_path / "trust.json").read_bytes()
    for attack in ({"keys": [9]}, {"expires": NOW}, {"keys": [9], "version": 1 << 50}):
        with pytest.raises(UntrustedBundle):
            accept(tmp_path, *content(**attack), NOW)
    assert (tmp_path / "trust.json").read_bytes() == before


def test_a_device_that_trusts_nobody_accepts_nothing(tmp_path: Path) -> None:
    with pytest.raises(UntrustedBundle, match="has no trust file; give it one with: moonfed-client trust FILE"):
        accept(tmp_path, *content(), NOW)
    made = make_release()
    with pytest.raises(UntrustedBundle, match="has no trust file"):
        accept_release(tmp_path, made.manifest.to_bytes(), made.signature, NOW)


@pytest.mark.parametrize("damaged", [b"", b"{}", b'{"trust":{},"accepted":{}}', b"[" * 100_000, b'{"accepted":[]}'])
def test_a_damaged_file_is_named_and_can_be_replaced(damaged: bytes, tmp_path: Path) -> None:
    (tmp_path / "trust.json").write_bytes(damaged)
    with refused(Corrupt, "trust file"):
        load(tmp_path)
    replace_trust(tmp_path, TRUST)
    held = load(tmp_path)
    assert held
    assert held.trust == TRUST


def test_another_trust_file_forgets_the_versions_and_the_same_one_does_not(tmp_path: Path) -> None:
    pin(tmp_path, TRUST)
    accept(tmp_path, *content(version=7), NOW)
    replace_trust(tmp_path, TRUST)
    held = load(tmp_path)
    assert held
    assert held.accepted == {"tested": 7}
    pin(tmp_path, trust(3))
    held = load(tmp_path)
    assert held
    assert (held.trust, held.accepted) == (trust(3), {"tested": 7})
    replace_trust(tmp_path, trust(4))
    held = load(tmp_path)
    assert held
    assert (held.trust, held.accepted) == (trust(4), {})


def test_a_bundle_in_a_file_is_checked_by_the_given_trust_the_devices_or_the_users(tmp_path: Path) -> None:
    own, stranger = content(version=3), content(keys=[9])
    assert bundle_check(None, tmp_path)(*own)  # this user's, of tests/conftest.py
    with pytest.raises(UntrustedBundle, match="which is not trusted"):
        bundle_check(None, tmp_path)(*stranger)
    pin(tmp_path, TRUST)
    accept(tmp_path, *content(version=4), NOW)
    with pytest.raises(UntrustedBundle, match="version 3 of bundle 'tested' is older than version 4"):
        bundle_check(None, tmp_path)(*own)
    pin(tmp_path, trust(9))
    theirs = content(keys=[9], version=9, chain=TrustChain((issued(trust(9), 9),)))
    assert bundle_check(None, tmp_path)(*theirs)
    write_trust(tmp_path / "given.json", CHAIN)
    assert bundle_check(tmp_path / "given.json", tmp_path)(*own)


def test_a_release_may_be_older_than_others_and_brings_a_newer_trust_file(tmp_path: Path) -> None:
    pin(tmp_path, TRUST)
    for version in (7, 2):
        made = make_release(version)
        read = accept_release(tmp_path, made.manifest.to_bytes(), made.signature, NOW)
        assert read == made.manifest
    rotated = make_release(3, keys=(2,), chain=ROTATED)
    accept_release(tmp_path, rotated.manifest.to_bytes(), rotated.signature, NOW)
    held = load(tmp_path)
    assert held
    assert (held.trust, held.accepted) == (trust(2, version=2), {})
    with pytest.raises(UntrustedRelease, match="which is not trusted"):
        accept_release(tmp_path, made.manifest.to_bytes(), made.signature, NOW)
    expired = make_release(4, keys=(2,), chain=ROTATED, expires=int(NOW))
    with pytest.raises(UntrustedRelease, match="expired"):
        accept_release(tmp_path, expired.manifest.to_bytes(), expired.signature, NOW)
    bundle = signature(rotated.manifest.to_bytes(), keys=[2], chain=ROTATED, name="digits", version=3)
    with pytest.raises(UntrustedRelease, match="has format 'application"):
        accept_release(tmp_path, rotated.manifest.to_bytes(), bundle.to_bytes(), NOW)
    assert load(tmp_path) == held


def test_trust_is_described() -> None:
    both = trust(1, 2, threshold=2, expires=FAR)
    first, second = both.keys
    assert describe(both) == f"bundles signed with 2 of the keys {first}, {second}, until 2096-10-02 07:06 UTC"
    assert describe(trust(1)) == f"bundles signed with {trust(1).keys[0]}"
