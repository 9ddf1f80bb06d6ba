"""A temporary file for decoders that read files: one per process, overwritten by each input."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path


@cache
def directory() -> Path:
    """Return this process's temporary directory, in memory where the machine has such a file system."""
    memory = Path("/dev/shm")
    created = tempfile.mkdtemp(prefix="moonfed-fuzz-", dir=memory if memory.is_dir() else None)
    atexit.register(shutil.rmtree, created, ignore_errors=True)
    return Path(created)


def file(content: bytes, name: str = "input") -> Path:
    """Write an input to the file of that name."""
    path = directory() / name
    path.write_bytes(content)
    return path
