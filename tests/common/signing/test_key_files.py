from __future__ import annotations

import multiprocessing
import stat
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from moonfed.errors import AlreadyExists, InvalidInput, NotFound
from moonfed.signing.envelope import PublicKey
from moonfed.signing.key_files import (
    create_keys,
    default_directory,
    ensure_keys,
    new_key_file,
    open_signer,
    read_key,
    read_public_key,
    read_trust,
    signing_keys,
    user_trust,
)
from moonfed.transport.identity import key_bytes
from tests.support.refusals import refused


def test_keys_are_made_once_and_the_first_use_says_where(tmp_path: Path) -> None:
    said: list[str] = []
    made = ensure_keys(tmp_path / "keys", said.append)
    assert ensure_keys(tmp_path / "keys", said.append) == made
    (sentence,) = said
    (path,) = (tmp_path / "keys").glob("key-*.pem")
    assert str(path) in sentence
    (public,) = made.verify().keys
    assert PublicKey.of(read_key(path)) == public == read_public_key(path.with_suffix(".pub"))
    assert [PublicKey.of(key) for key in signing_keys(tmp_path / "keys", made.newest.keys)] == [public]


def test_only_the_owner_may_read_a_key(tmp_path: Path) -> None:
    path = create_keys(tmp_path / "keys")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    for mode in (0o640, 0o604, 0o620):
        path.chmod(mode)
        with refused(InvalidInput, "key", path):
            read_key(path)


def test_existing_keys_are_not_replaced(tmp_path: Path) -> None:
    create_keys(tmp_path)
    with refused(AlreadyExists, "keys"):
        create_keys(tmp_path)


def _ensure(directory: Path) -> bytes:
    return ensure_keys(directory, lambda _: None).to_bytes()


def test_processes_that_need_keys_at_once_make_one(tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        assert len(set(pool.map(_ensure, [tmp_path / "keys"] * 8))) == 1
    assert len(list((tmp_path / "keys").glob("key-*.pem"))) == 1


def test_another_kind_of_key_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    path.touch(0o600)
    curve = ec.generate_private_key(ec.SECP256R1())
    for content, problem in ((b"", "unencrypted private key in PEM"), (key_bytes(curve), "an Ed25519 key")):
        path.write_bytes(content)
        with pytest.raises(InvalidInput, match=problem):
            read_key(path)
    public = curve.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    for content, problem in ((b"", "a public key in PEM"), (public, "an Ed25519 key")):
        path.write_bytes(content)
        with pytest.raises(InvalidInput, match=problem):
            read_public_key(path)
    with refused(NotFound, "key"):
        read_key(tmp_path / "none")


def test_a_damaged_trust_file_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "trust.json").write_text("[]")
    with refused(InvalidInput, "trust"):
        read_trust(tmp_path / "trust.json")


def test_keys_of_nobody_else_sign(tmp_path: Path) -> None:
    create_keys(tmp_path)
    other, _ = new_key_file(tmp_path)
    trust = read_trust(tmp_path / "trust.json").newest
    assert len(signing_keys(tmp_path, trust.keys)) == 1
    with refused(InvalidInput, "sign"):
        open_signer([other], print)
    with refused(NotFound, "private key"):
        signing_keys(tmp_path / "elsewhere", trust.keys)


def test_a_named_key_signs_with_the_trust_file_next_to_it(tmp_path: Path) -> None:
    path = create_keys(tmp_path)
    signer = open_signer([path], print)
    assert [PublicKey.of(key) for key in signer.keys] == [read_public_key(path.with_suffix(".pub"))]
    assert signer.chain == read_trust(tmp_path / "trust.json")


def test_the_directory_is_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOONFED_KEYS", str(tmp_path / "given"))
    assert default_directory() == tmp_path / "given"
    with refused(NotFound, "trust file"):
        user_trust(None)
    create_keys(tmp_path / "given")
    assert user_trust(None) == user_trust(tmp_path / "given" / "trust.json")
    monkeypatch.delenv("MOONFED_KEYS")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    assert default_directory() == tmp_path / "config" / "moonfed"
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert default_directory() == tmp_path / "home" / ".config" / "moonfed"
