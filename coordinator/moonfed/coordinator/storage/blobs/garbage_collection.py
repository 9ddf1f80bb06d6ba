"""Garbage collection of unreferenced blobs.

The rows that refer to a blob are deleted first, in a transaction, and the blob afterwards. A kill between the two
leaves an unneeded blob, never a reference without its blob; the next start deletes it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from moonfed.blobs.store import BlobRef
from moonfed.coordinator.storage.blobs.blob_store import BlobStore
from moonfed.coordinator.storage.blobs.pins import Pins
from moonfed.coordinator.storage.disk_budget import DiskBudget
from moonfed.coordinator.storage.store import Store

_log = logging.getLogger(__name__)
UPLOAD_SECONDS = 24 * 3600.0  # after which an uploaded bundle that no run was started from counts as abandoned


class GarbageCollector:
    """Deletes unreferenced blobs. Blocking."""

    def __init__(self, store: Store, blobs: BlobStore, pins: Pins, budget: DiskBudget) -> None:
        self._store = store
        self._blobs = blobs
        self._pins = pins
        self._budget = budget

    def collect(self, candidates: Iterable[BlobRef]) -> int:
        """Delete the unreferenced ones of the blobs, and return the bytes freed."""
        freed = 0
        for ref in candidates:

            def delete(ref: BlobRef = ref) -> None:
                nonlocal freed
                if not self._store.refers_to(ref.sha256):
                    self._blobs.delete(ref.sha256)
                    freed += ref.size

            try:
                self._pins.unless_pinned(ref.sha256, delete)
            except Exception as error:  # the next sweep deletes it: nothing depends on it
                _log.error("blob %s cannot be deleted", ref.sha256[:12], exc_info=error)
        self._budget.invalidate()
        return freed

    def sweep(self) -> None:
        """Delete the blobs that a kill or an abandoned upload left behind."""
        if freed := self.collect(self._blobs.unused_since(UPLOAD_SECONDS)):
            _log.info("deleted %d bytes of unreferenced blobs", freed)
