"""The password file: a line `OPERATOR:HASH` for each operator who may log in, hashed with Argon2id."""

from __future__ import annotations

from pathlib import Path

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from moonfed.errors import InvalidInput, NotFound
from moonfed.files import write_durably

LEAST, MOST = 12, 1024  # characters of a password
# OWASP's parameters for machines with little memory: 19 MiB while a password is verified, and only then.
_HASHER = PasswordHasher(time_cost=2, memory_cost=19 * 1024, parallelism=1)


class Passwords:
    """The operators' password hashes."""

    def __init__(self, hashes: dict[str, str]) -> None:
        self._hashes = hashes
        self._nobody = _HASHER.hash("nobody's")  # verified for unknown names, so that answers take equally long

    @property
    def operators(self) -> frozenset[str]:
        """The names of those who have a password."""
        return frozenset(self._hashes)

    def verify(self, operator: str, password: str) -> bool:
        """Return whether this is the operator's password; takes about 30 ms of processor time either way."""
        found = self._hashes.get(operator)
        try:
            return _HASHER.verify(found or self._nobody, password[:MOST]) and found is not None
        except VerificationError:
            return False


def read_passwords(file: Path) -> Passwords:
    """Read a password file; NotFound if there is none, InvalidInput for a malformed line."""
    if not file.is_file():
        raise NotFound(
            field="password-file", value=file, rest=", which does not exist; write it with: console-password"
        )
    hashes = _hashes(file)
    if not hashes:
        raise InvalidInput(f"password-file {str(file)!r} holds no password; add one with: console-password")
    return Passwords(hashes)


def set_password(file: Path, operator: str, password: str) -> None:
    """Add an operator's password to a file, or replace it; InvalidInput for a short password."""
    if not LEAST <= len(password) <= MOST:
        raise InvalidInput(
            f"password has {len(password)} characters; it must have {LEAST} to {MOST}",
            field="length of password",
            value=len(password),
        )
    hashes = (_hashes(file) if file.is_file() else {}) | {operator: _HASHER.hash(password)}
    lines = [f"{name}:{found}\n" for name, found in sorted(hashes.items())]
    write_durably(file, "".join(lines).encode(), mode=0o600)


def _hashes(file: Path) -> dict[str, str]:
    hashes = {}
    for number, line in enumerate(file.read_text(encoding="utf-8", errors="replace").splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        operator, colon, found = line.partition(":")
        try:
            _HASHER.check_needs_rehash(found)
        except InvalidHashError as error:
            raise InvalidInput(
                f"line {number} of {str(file)!r} is invalid; it must be OPERATOR:HASH, written by console-password"
            ) from error
        if not operator or not colon or not found.startswith("$argon2id$"):
            raise InvalidInput(f"line {number} of {str(file)!r} must be OPERATOR:HASH with a hash of Argon2id")
        hashes[operator] = found
    return hashes
