"""Copies of the spooled updates in an object store, for whichever coordinator reduces their round."""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Mapping
from pathlib import Path

from moonfed.blobs.store import ref_of_file
from moonfed.coordinator.records import AttemptId
from moonfed.coordinator.storage.blobs.object_client import ObjectClient


class SharedSpool:
    """Checked updates as objects `spool/RUN/ROUND-ATTEMPT/DEVICE/ROLE/SHA256`. Blocking.

    Two coordinators may receive two different updates of one device; the database decides later which one counts.
    """

    def __init__(self, objects: ObjectClient) -> None:
        self._objects = objects

    def put(self, attempt: AttemptId, device: str, files: Mapping[str, Path]) -> None:
        """Store the files of a device's update, by role; durable on return."""
        for role, path in files.items():
            self._objects.put(path, f"{_prefix(attempt)}/{device}/{role}/{ref_of_file(path).sha256}")

    def fetch(self, attempt: AttemptId, device: str, role: str, path: Path, sha256: str) -> None:
        """Fetch one role's file, which another coordinator received, to `path`; raises NotFound."""
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{threading.get_ident()}")
        try:
            self._objects.get(f"{_prefix(attempt)}/{device}/{role}/{sha256}", temporary)
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)

    def delete(self, attempt: AttemptId) -> None:
        """Delete the updates of an attempt that is over."""
        for key, _, _ in self._objects.listed(f"{_prefix(attempt)}/"):
            self._objects.delete(key)

    def delete_update(self, attempt: AttemptId, device: str) -> None:
        """Delete a device's update."""
        for key, _, _ in self._objects.listed(f"{_prefix(attempt)}/{device}/"):
            self._objects.delete(key)

    def delete_except(self, run: str, attempts: Collection[AttemptId]) -> None:
        """Delete the updates that a killed coordinator left of a run, except those of the given attempts."""
        kept = tuple(f"{_prefix(attempt)}/" for attempt in attempts)
        for key, _, _ in self._objects.listed(f"spool/{run}/"):
            if not key.startswith(kept):
                self._objects.delete(key)


def _prefix(attempt: AttemptId) -> str:
    return f"spool/{attempt.run}/{attempt.round}-{attempt.attempt}"
