"""API keys: a file with a name, a role and a hash on each line, such as `alice user sha256:9f86d0…`.

A key is 256 random bits, so it cannot be guessed from a plain hash. The file is read again whenever it changes.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
import secrets
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from moonfed.errors import AlreadyExists, InvalidInput, MoonfedError, NotFound
from moonfed.files import read_regular, write_durably
from moonfed.formatting import count

_log = logging.getLogger(__name__)
USER, ADMIN = "user", "admin"  # an admin may also load and unload models, and read metrics
PREFIX = "moonfed_"  # recognised by scanners of repositories and logs
_ALGORITHM = "sha256:"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_MAX_FILE_BYTES = 1 << 20
_CHECK_SECONDS = 1.0  # between two checks of the file


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """One line of the file."""

    name: str
    role: str
    digest: bytes

    @property
    def is_admin(self) -> bool:
        """True if the key also permits loading, unloading and metrics."""
        return self.role == ADMIN


def create_key(path: Path, name: str, *, admin: bool) -> str:
    """Add a new key to a file, created if absent, and return it: it is stored nowhere else.

    Raises AlreadyExists if the file has a key of that name, InvalidInput for another name or file.
    """
    if not _NAME.fullmatch(name):
        raise InvalidInput(f"name is {name!r}; it must be up to 64 letters, digits, '.', '-', '_' and '@'")
    text = _read(path) if path.exists() else ""
    if name in (key.name for key in _parse(text, path)):
        raise AlreadyExists(f"{path} has a key named {name!r}; delete its line first, or choose another name")
    key = PREFIX + secrets.token_urlsafe(32)
    line = f"{name} {ADMIN if admin else USER} {_ALGORITHM}{_digest(key).hex()}\n"
    write_durably(path, (text + ("\n" if text and not text.endswith("\n") else "") + line).encode(), mode=0o600)
    return key


def read_keys(path: Path) -> tuple[ApiKey, ...]:
    """Read a file of keys; raise NotFound, or InvalidInput naming the line."""
    return _parse(_read(path), path)


class ApiKeys:
    """The keys in a file. Thread-safe."""

    def __init__(self, path: Path) -> None:
        """Read the file; raise NotFound, or InvalidInput if it is not a file of keys or has none."""
        self._path = path
        self._lock = threading.Lock()
        self._state = _state(path)
        self._keys = read_keys(path)
        self._checked = time.monotonic()
        if not self._keys:
            raise InvalidInput(f"{path} has no keys; create one with `moonfed-export api-key NAME --file {path}`")

    def find(self, key: str) -> ApiKey | None:
        """Return the line that has this key; every line is compared, in constant time."""
        self._refresh()
        digest, found = _digest(key), None
        for each in self._keys:
            if hmac.compare_digest(each.digest, digest):
                found = each
        return found

    def _refresh(self) -> None:
        now = time.monotonic()
        if now - self._checked < _CHECK_SECONDS:
            return
        with self._lock:
            self._checked = now
            state = _state(self._path)
            if state == self._state:
                return
            self._state = state
            try:
                self._keys = read_keys(self._path)
                _log.info("%s was changed; it has %s now", self._path, count(len(self._keys), "key"))
            except MoonfedError as error:
                _log.error("%s; the previous %d keys stay valid", error, len(self._keys))


def _read(path: Path) -> str:
    try:
        return read_regular(path, _MAX_FILE_BYTES).decode()
    except OSError as error:
        raise NotFound(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path} is not a file of API keys: it is not UTF-8") from error


def _parse(text: str, path: Path) -> tuple[ApiKey, ...]:
    keys: dict[str, ApiKey] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        words = line.split()
        if len(words) != 3 or words[1] not in (USER, ADMIN) or not _DIGEST.fullmatch(words[2]):
            raise InvalidInput(f"line {number} of {path} must be NAME user|admin sha256:HASH, as `api-key` writes it")
        if words[0] in keys:
            raise InvalidInput(f"line {number} of {path} repeats the name {words[0]!r}; names must be unique")
        digest = bytes.fromhex(words[2].removeprefix(_ALGORITHM))
        keys[words[0]] = ApiKey(name=words[0], role=words[1], digest=digest)
    return tuple(keys.values())


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


def _state(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
