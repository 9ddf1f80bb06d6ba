"""Files that are made once per session and shared by the test processes; tests/conftest.py makes their directory."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

CACHE = "SESSION_CACHE_OF_TESTS"  # names the directory to the other test process


def cached(key: bytes, write: Callable[[Path], object]) -> Path:
    """Return the file or directory that `write` makes for `key`, made by the first caller of all processes."""
    path = Path(os.environ[CACHE]) / hashlib.sha256(key).hexdigest()
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            write(path.with_suffix(".new"))
            path.with_suffix(".new").replace(path)
    return path
