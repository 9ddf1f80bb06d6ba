"""Devices' access to stored blobs: a device may fetch only those of runs that it participates in."""

from __future__ import annotations

from moonfed.coordinator.storage.store import Store
from moonfed.errors import NotFound

MAX_BLOBS = 256  # blobs with known participants: the files of the active runs


class BlobAccess:
    """The participants who may fetch each blob. Blocking, from any thread.

    Participants are never removed, so cached entries stay valid until the deletion of a run releases its blobs.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._allowed: dict[str, set[str]] = {}  # devices by sha256

    def require(self, device: str, sha256: str) -> None:
        """Raise NotFound unless the device was in a cohort of a run that the blob belongs to."""
        allowed = self._allowed.get(sha256)
        if allowed is None:
            allowed = self._store.participants_with(sha256)
            self._remember(sha256, allowed)
        if device in allowed:
            return
        if not self._store.participants_with(sha256, device):
            raise NotFound(f"blob {sha256[:12]} belongs to no run that device {device!r} participates in")
        allowed.add(device)

    def participates(self, device: str, run: str) -> bool:
        """Return True if the device was in a cohort of the run."""
        return device in self._store.participants(run)

    def _remember(self, sha256: str, allowed: set[str]) -> None:
        if len(self._allowed) >= MAX_BLOBS:
            self._allowed.clear()
        if allowed:  # otherwise requests for unknown blobs could fill the cache
            self._allowed[sha256] = allowed
