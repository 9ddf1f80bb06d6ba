"""Durable, atomic writes of files and directories; bounded reads; checks that files exist."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from moonfed.errors import InvalidInput, NotFound, ResourceExhausted

_log = logging.getLogger(__name__)
_fsync_observers: list[Callable[[float], None]] = []


def require_file(name: str, path: Path) -> None:
    """Raise NotFound, naming the option or field, unless the file exists."""
    if not path.is_file():
        raise NotFound(field=name, value=path, rest="; there is no such file")


@contextmanager
def fsyncs_observed(observe: Callable[[float], None]) -> Iterator[None]:
    """Pass the seconds of every fsync in this process to a function, from any thread, until the context ends."""
    _fsync_observers.append(observe)
    try:
        yield
    finally:
        _fsync_observers.remove(observe)


def fsync(descriptor: int) -> None:
    """Make what was written to an open file durable."""
    began = time.perf_counter()
    os.fsync(descriptor)
    for observe in tuple(_fsync_observers):
        observe(time.perf_counter() - began)


def sync_directory(path: Path) -> None:
    """Make renames inside `path` durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directories(path: Path, *, mode: int = 0o777) -> None:
    """Create a directory and its missing parents durably."""
    if not path.is_dir():
        if path.exists():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
        make_directories(path.parent)
        path.mkdir(mode=mode, exist_ok=True)
        sync_directory(path.parent)


def make_private(directory: Path) -> None:
    """Make an existing directory private; warn if other users could read it."""
    mode = directory.stat().st_mode & 0o777
    if mode & 0o077:
        directory.chmod(0o700)
        _log.warning("other users could read %s (mode %o); it is now private", directory, mode)


def write_durably(path: Path, content: bytes, *, mode: int = 0o644) -> None:
    """Write a whole file under a temporary name, fsync it and rename it into place."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        fsync(file.fileno())
    os.replace(temporary, path)
    sync_directory(path.parent)


def sync_file(path: Path) -> None:
    """Make the content of a file that was written elsewhere durable."""
    with path.open("rb") as file:
        fsync(file.fileno())


def link_or_copy(source: Path, target: Path) -> None:
    """Hard-link a file that never changes, or copy it where the file system has no hard links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


@contextmanager
def new_directory(path: Path) -> Iterator[Path]:
    """Yield an empty directory next to `path`; on success its files are fsynced and it takes the name `path`.

    An existing `path` is replaced. If the body raises, nothing is left behind.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        yield temporary
        for file in temporary.rglob("*"):
            if file.is_file():
                sync_file(file)
        sync_directory(temporary)
        if path.exists():
            shutil.rmtree(path)
        os.replace(temporary, path)
        sync_directory(path.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def read_regular(path: Path, size: int) -> bytes:
    """Read a regular file of at most `size` bytes.

    Raises ResourceExhausted for a larger one, InvalidInput for a device or a pipe, whose end would never come.
    """
    with open(path, "rb", opener=_open_regular) as file:
        content = file.read(size + 1)
    if len(content) > size:
        raise ResourceExhausted(f"{path} has more than {size} bytes")
    return content


def _open_regular(path: str, flags: int) -> int:
    descriptor = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise InvalidInput(f"{path} is not a regular file", field="regular file", value=path)
    return descriptor
