"""Copies of the spooled updates in an object store, for whichever coordinator comes to reduce their round."""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Iterable
from pathlib import Path

from moonfed.blobs import ref_of_file
from moonfed.coordinator.records import AttemptId
from moonfed.coordinator.storage.blobs.object_client import Objects


class SharedSpool:
    """Checked updates as objects `spool/RUN/ROUND-ATTEMPT/DEVICE/ROLE/SHA256`. Blocking.

    Two coordinators may receive two different updates of one device; which of them counts is decided afterwards.
    """

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    def put(self, attempt: AttemptId, device: str, files: Iterable[Path]) -> None:
        """Stores the files of a device's update, each named by its role; durable when this returns."""
        for path in files:
            self._objects.put(path, f"{_folder(attempt)}/{device}/{path.name}/{ref_of_file(path).sha256}")

    def fetch(self, attempt: AttemptId, device: str, path: Path, sha256: str) -> None:
        """Brings one role's file, which was received by another coordinator, to its place; NotFound."""
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{threading.get_ident()}")
        try:
            self._objects.get(f"{_folder(attempt)}/{device}/{path.name}/{sha256}", temporary)
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)

    def forget(self, attempt: AttemptId) -> None:
        """Deletes the updates of an attempt that is over."""
        for key, _, _ in self._objects.listed(f"{_folder(attempt)}/"):
            self._objects.delete(key)

    def forget_update(self, attempt: AttemptId, device: str) -> None:
        """Deletes a device's update."""
        for key, _, _ in self._objects.listed(f"{_folder(attempt)}/{device}/"):
            self._objects.delete(key)

    def forget_all_but(self, run: str, attempts: Collection[AttemptId]) -> None:
        """Deletes what a killed coordinator left of a run's attempts that are over."""
        kept = tuple(f"{_folder(attempt)}/" for attempt in attempts)
        for key, _, _ in self._objects.listed(f"spool/{run}/"):
            if not key.startswith(kept):
                self._objects.delete(key)


def _folder(attempt: AttemptId) -> str:
    return f"spool/{attempt.run}/{attempt.round}-{attempt.attempt}"
