"""Keys are replaced, added and removed; owners of several keys sign a trust file one after the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from moonfed.errors import InvalidInput, NotFound, UntrustedBundle
from moonfed.export.trust_rotation import Change, rotate_trust, sign_trust
from moonfed.signing.key_files import create_keys, read_public_key, read_trust, signing_keys
from tests.support.refusals import refused


def own_key(directory: Path) -> Path:
    (path,) = directory.glob("key-*.pem")
    return path


def test_a_key_is_replaced_by_a_new_one_that_the_old_one_vouches_for(tmp_path: Path) -> None:
    create_keys(tmp_path)
    before = read_trust(tmp_path / "trust.json").verify()
    path, chain = rotate_trust(tmp_path, Change())
    assert path == tmp_path / "trust.json"
    after = read_trust(path).follow(before)
    assert chain.verify() == after
    assert (after.version, after.threshold, len(after.keys)) == (2, 1, 1)
    assert not set(after.keys) & set(before.keys)
    assert signing_keys(tmp_path, after.keys)


def test_a_colleagues_key_is_added_and_has_to_sign_the_trust_file(tmp_path: Path) -> None:
    mine, theirs = tmp_path / "mine", tmp_path / "theirs"
    create_keys(mine)
    create_keys(theirs)
    before = read_trust(mine / "trust.json").verify()
    change = Change(add=(own_key(theirs).with_suffix(".pub"),), threshold=2, expires=2_000_000_000)
    path, chain = rotate_trust(mine, change)
    assert path == mine / "trust-2.json"
    assert read_trust(mine / "trust.json").verify() == before
    with refused(UntrustedBundle, "threshold", 2):
        chain.verify()
    after = sign_trust(path, [own_key(theirs)]).follow(before)
    assert (after.threshold, after.expires, len(after.keys)) == (2, 2_000_000_000, 2)
    assert read_trust(path).verify() == after


def test_a_user_signs_with_the_keys_that_matter_to_the_trust_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, theirs = tmp_path / "mine", tmp_path / "theirs"
    create_keys(mine)
    create_keys(theirs)
    path, _ = rotate_trust(mine, Change(add=(own_key(theirs).with_suffix(".pub"),), threshold=2))
    monkeypatch.setenv("MOONFED_KEYS", str(tmp_path / "nobody"))
    with pytest.raises(NotFound, match="holds no private key"):
        sign_trust(path, [])
    monkeypatch.setenv("MOONFED_KEYS", str(theirs))
    assert sign_trust(path, []).verify().threshold == 2


def test_a_key_is_removed_by_its_id(tmp_path: Path) -> None:
    mine, theirs = tmp_path / "mine", tmp_path / "theirs"
    create_keys(mine)
    create_keys(theirs)
    public = read_public_key(own_key(theirs).with_suffix(".pub"))
    rotate_trust(mine, Change(add=(own_key(theirs).with_suffix(".pub"),)))
    for wrong in ("", "none"):
        with refused(InvalidInput, "remove", wrong):
            rotate_trust(mine, Change(remove=(wrong,)))
    _, chain = rotate_trust(mine, Change(remove=(str(public),)))
    assert (chain.verify().version, chain.verify().keys) == (3, (read_public_key(own_key(mine).with_suffix(".pub")),))


def test_the_threshold_cannot_exceed_the_keys(tmp_path: Path) -> None:
    create_keys(tmp_path)
    with refused(InvalidInput, "threshold", 2):
        rotate_trust(tmp_path, Change(threshold=2))
