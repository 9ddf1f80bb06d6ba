"""The lock of a state directory, which keeps a second process out."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from moonfed.errors import MoonfedError
from moonfed.files import make_directories, make_private

LOCK_FILE = "lock"


@contextmanager
def directory_lock(directory: Path, taken: Callable[[str], MoonfedError]) -> Iterator[None]:
    """Create a private directory if needed and hold its lock; raise `taken(PROCESS)` if another process holds it.

    If the body raises an error, a lock that is new is removed, and so is the directory if it is new and empty.
    """
    file, new_directory = directory / LOCK_FILE, not directory.exists()
    make_directories(directory, mode=0o700)
    make_private(directory)
    new_lock = not file.exists()
    descriptor = _acquire(file, taken)
    try:
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
        yield
    except Exception:
        if new_lock:
            file.unlink(missing_ok=True)  # while it is held: see _acquire
        if new_directory:
            with suppress(OSError):  # not empty
                directory.rmdir()
        raise
    finally:
        os.close(descriptor)


def _acquire(file: Path, taken: Callable[[str], MoonfedError]) -> int:
    """Return a descriptor that holds the lock; a lock on a file that was just deleted protects nothing."""
    while True:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            process = os.read(descriptor, 32).decode(errors="replace").strip() or "unknown"
            os.close(descriptor)
            raise taken(process) from error
        if _is_file(descriptor, file):
            return descriptor
        os.close(descriptor)


def _is_file(descriptor: int, file: Path) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(descriptor), file.stat())
    return False
