"""Blobs that are about to be referred to: between a blob's arrival and the commit that needs it, it must not go."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Hashable


class Pins:
    """The pinned blobs of this process, by whoever is about to refer to them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pinned: dict[Hashable, set[str]] = {}

    def add(self, owner: Hashable, digests: Collection[str]) -> None:
        """Pins blobs; to be called before they are put, or found to be there."""
        with self._lock:
            self._pinned.setdefault(owner, set()).update(digests)

    def drop(self, owner: Hashable) -> None:
        """The owner refers to its blobs now, or never will."""
        with self._lock:
            self._pinned.pop(owner, None)

    def unless_pinned(self, sha256: str, work: Callable[[], None]) -> None:
        """Does something to a blob that nobody has pinned, while nobody can."""
        with self._lock:
            if not any(sha256 in digests for digests in self._pinned.values()):
                work()
