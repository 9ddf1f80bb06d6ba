"""A user's signing keys and trust file: a private directory, created when something is first signed.

trust.json        the trust file, with all its versions
key-ID.pem        a private key (PKCS #8), which only its owner may read
key-ID.pub        its public half, for the owners of other keys
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from moonfed.errors import AlreadyExists, InvalidInput, NotFound
from moonfed.files import make_directories, read_regular, write_durably
from moonfed.signing.canonical import MAX_BYTES
from moonfed.signing.envelope import PublicKey
from moonfed.signing.trust import Trust, TrustChain

KEYS_VARIABLE = "MOONFED_KEYS"
TRUST_FILE = "trust.json"
MAX_KEY_BYTES = 1 << 14


def default_directory() -> Path:
    """Return the directory of this user's keys: $MOONFED_KEYS, or moonfed in the user's configuration directory."""
    if given := os.environ.get(KEYS_VARIABLE):
        return Path(given)
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "moonfed"


def ensure_keys(directory: Path, say: Callable[[str], None]) -> TrustChain:
    """Return the directory's trust file; if it has none, create a key and a trust file, and report that."""
    if not (directory / TRUST_FILE).exists():
        with _locked(directory):
            if not (directory / TRUST_FILE).exists():  # another process has just made it
                path = _create(directory)
                say(f"created the signing key {path}; keep a copy of {directory} in a safe place")
    return read_trust(directory / TRUST_FILE)


def create_keys(directory: Path) -> Path:
    """Create a key, and a trust file with this key alone; return the key's file. AlreadyExists if there is one."""
    with _locked(directory):
        if (directory / TRUST_FILE).exists():
            raise AlreadyExists(
                f"{directory} already holds keys and a trust file; `moonfed-export keys rotate` changes them",
                field="keys",
                value=directory,
            )
        return _create(directory)


def new_key_file(directory: Path) -> tuple[Path, Ed25519PrivateKey]:
    """Create a key; no trust file names it yet."""
    key = Ed25519PrivateKey.generate()
    public = PublicKey.of(key)
    path = directory / f"key-{public}.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    write_durably(path, private, mode=0o600)
    shared = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    write_durably(path.with_suffix(".pub"), shared)
    return path, key


def read_key(path: Path) -> Ed25519PrivateKey:
    """Read a private key; InvalidInput if other users may read it, or if it is not an Ed25519 key."""
    content = _read(path, "key")
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        raise InvalidInput(
            field="key", value=path, rest=f", which has mode {mode:o}; it must be private: chmod 600 {path}"
        )
    try:
        key = serialization.load_pem_private_key(content, None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise InvalidInput(field="key", value=path, allowed="an unencrypted private key in PEM") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise InvalidInput(field="key", value=path, allowed="an Ed25519 key, as `moonfed-export keys create` makes")
    return key


def read_public_key(path: Path) -> PublicKey:
    """Read a public key; InvalidInput if it is not an Ed25519 key."""
    try:
        key = serialization.load_pem_public_key(_read(path, "key"))
    except (ValueError, UnsupportedAlgorithm) as error:
        raise InvalidInput(field="key", value=path, allowed="a public key in PEM, key-….pub") from error
    if not isinstance(key, Ed25519PublicKey):
        raise InvalidInput(field="key", value=path, allowed="an Ed25519 key, as `moonfed-export keys create` makes")
    return PublicKey(key.public_bytes_raw())


def read_trust(path: Path) -> TrustChain:
    """Read a trust file; InvalidInput if the file is something else."""
    try:
        return TrustChain.from_bytes(_read(path, "trust"))
    except InvalidInput as error:
        raise InvalidInput(field="trust", value=path, rest=f", which cannot be used: {error}") from error


def write_trust(path: Path, chain: TrustChain) -> None:
    """Replace a trust file."""
    write_durably(path, chain.to_bytes())


@dataclass(frozen=True, slots=True)
class Signer:
    """Private keys, and the trust file that lists them."""

    keys: tuple[Ed25519PrivateKey, ...]
    chain: TrustChain


def open_signer(paths: Sequence[Path], say: Callable[[str], None]) -> Signer:
    """Return the signer with these private keys and the trust file next to the first; by default, this user's.

    If the user has no keys, they are created and `say` is called. Raises InvalidInput for a key that the trust file
    does not list, UntrustedBundle for a trust file that lacks signatures.
    """
    if not paths:
        directory = default_directory()
        chain = ensure_keys(directory, say)
        return Signer(tuple(signing_keys(directory, chain.verify().keys)), chain)
    file = paths[0].parent / TRUST_FILE
    chain, keys = read_trust(file), tuple(read_key(path) for path in paths)
    listed = chain.verify().keys
    for path, key in zip(paths, keys, strict=True):
        if PublicKey.of(key) not in listed:
            raise InvalidInput(
                field="sign",
                value=path,
                rest=f", which {file} does not list; add it with: moonfed-export keys rotate --add",
            )
    return Signer(keys, chain)


def signing_keys(directory: Path, keys: Iterable[PublicKey]) -> list[Ed25519PrivateKey]:
    """Return the private halves of these keys that the directory holds; NotFound if it holds none."""
    names = [directory / f"key-{key}.pem" for key in sorted(keys)]
    found = [read_key(path) for path in names if path.exists()]
    if not found:
        raise NotFound(
            f"{directory} holds no private key that the trust file lists; give the file or the directory of one",
            field="private key",
            value=directory,
        )
    return found


def user_trust(given: Path | None) -> Trust:
    """Return the newest version of a trust file, by default of this user's; NotFound if there is none."""
    path = given or default_directory() / TRUST_FILE
    if given is None and not path.exists():
        raise NotFound(
            f"there is no trust file {path}; name that of the bundle's engineer with --trust",
            field="trust file",
            value=path,
        )
    return read_trust(path).verify()


def _create(directory: Path) -> Path:
    path, key = new_key_file(directory)
    trust = Trust(version=1, keys=(PublicKey.of(key),))
    write_trust(directory / TRUST_FILE, TrustChain((trust.unsigned().sign(key),)))
    return path


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    make_directories(directory, mode=0o700)
    with (directory / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _read(path: Path, name: str) -> bytes:
    if not path.is_file():
        raise NotFound(field=name, value=path, rest="; there is no such file")
    return read_regular(path, MAX_BYTES if name == "trust" else MAX_KEY_BYTES)
