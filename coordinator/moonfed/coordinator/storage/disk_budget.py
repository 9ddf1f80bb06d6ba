"""A limit on the size of the state directory: a warning when it is nearly reached; beyond it uploads are rejected."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from moonfed.errors import ResourceExhausted
from moonfed.sizes import human

WARN_AT = 0.8  # of the budget
MEASURED_SECONDS = 10.0  # validity of a measurement, which walks the directory
_log = logging.getLogger(__name__)


class DiskBudget:
    """The bytes of all files below a directory, and those admitted since the last measurement. Blocking."""

    def __init__(self, root: Path, limit: int | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._root = root
        self._limit = limit
        self._clock = clock
        self._lock = threading.Lock()
        self._used, self._measured = 0, -MEASURED_SECONDS
        self._warned = self._rejecting = False

    @property
    def limit(self) -> int | None:
        """The limit in bytes, if one is set."""
        return self._limit

    @property
    def limited(self) -> bool:
        """True if a limit is set."""
        return self._limit is not None

    def require(self, size: int) -> None:
        """Admit an upload of that many bytes; raises ResourceExhausted if it would exceed the budget."""
        if self._limit is None:
            return
        with self._lock:
            now = self._clock()
            if now - self._measured >= MEASURED_SECONDS:
                self._used, self._measured = used_bytes(self._root), now
            self._warn(self._limit)
            full = self._used + size > self._limit
            if full and not self._rejecting:
                _log.warning("%s: %s", self._root, self._shortage(self._limit, size))
            self._rejecting = full
            if full:
                raise ResourceExhausted(f"the coordinator's {self._shortage(self._limit, size)}")
            self._used += size

    def invalidate(self) -> None:
        """Make the next check measure again, after a deletion."""
        with self._lock:
            self._measured = -MEASURED_SECONDS

    def _shortage(self, limit: int, size: int) -> str:
        more = f", and {human(size)} more are needed" if size else ""
        return f"disk budget of {human(limit)} leaves too little room: {human(self._used)} are in use{more}"

    def _warn(self, limit: int) -> None:
        """Warn once each time that the threshold is crossed."""
        passed = self._used >= WARN_AT * limit
        if passed and not self._warned:
            _log.warning(
                "%s uses %s of the disk budget of %s; uploads beyond it are rejected: prune or delete runs, "
                "or raise --disk-budget",
                self._root,
                human(self._used),
                human(limit),
            )
        self._warned = passed


def used_bytes(root: Path) -> int:
    """Return the bytes of all files below a directory, skipping files that disappear meanwhile."""
    total, directories = 0, [str(root)]
    while directories:
        size, below = _scan(directories.pop())
        total += size
        directories += below
    return total


def _scan(directory: str) -> tuple[int, list[str]]:
    """Return the bytes of the files in a directory, and its subdirectories."""
    total, below = 0, []
    with suppress(FileNotFoundError), os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                below.append(entry.path)
            else:
                with suppress(FileNotFoundError):
                    total += entry.stat(follow_symlinks=False).st_size
    return total, below
