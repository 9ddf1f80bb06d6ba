"""Devices' access to stored blobs.

A device may fetch those of runs that it participates in or is asked to check, and of releases deployed to it. Access to
a run's blobs is remembered by certificate, because a name may pass to another device.
"""

from __future__ import annotations

from moonfed.coordinator.devices.sessions import Sessions
from moonfed.coordinator.storage.store import Store
from moonfed.errors import NotFound

MAX_BLOBS = 256  # blobs with known participants: the files of the active runs


class BlobAccess:
    """The certificates with which each blob may be fetched. Blocking, from any thread.

    Those of a device that is removed or renamed are rejected, so cached entries stay valid until the deletion of a run
    releases its blobs.
    """

    def __init__(self, store: Store, sessions: Sessions) -> None:
        self._store, self._sessions = store, sessions
        self._allowed: dict[str, set[str]] = {}  # serial numbers by sha256; names without TLS

    def require(self, device: str, serial: str, sha256: str) -> None:
        """Raise NotFound unless a run or a release lets the device fetch the blob.

        `serial`: of the device's certificate; empty without TLS.
        """
        if (session := self._sessions.find(device)) and session.may_fetch(sha256):
            return
        allowed = self._allowed.get(sha256)
        if allowed is None:
            allowed = self._store.certificates_for(sha256)
            self._remember(sha256, allowed)
        if (serial or device) in allowed:
            return
        if self._store.may_fetch(sha256, device):
            allowed.add(serial or device)
        elif not self._store.deployments.may_fetch(device, sha256):
            raise NotFound(
                f"blob {sha256[:12]} belongs to no run that device {device!r} participates in, and to no release "
                "deployed to it",
                field="blob",
                value=sha256[:12],
            )

    def _remember(self, sha256: str, allowed: set[str]) -> None:
        if len(self._allowed) >= MAX_BLOBS:
            self._allowed.clear()
        if allowed:  # otherwise requests for unknown blobs could fill the cache
            self._allowed[sha256] = allowed
