"""The spool: updates of open rounds, from their first byte until the round is committed or abandoned.

RUN/ROUND-ATTEMPT/incoming/DEVICE/SHA256   blobs that are being received
RUN/ROUND-ATTEMPT/updates/ROLE/DEVICE      checked updates; few directories, since each needs an fsync
RUN/ROUND-ATTEMPT/reduced/                 the next global state while it is computed
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from moonfed.blobs.store import BlobRef, ref_of_file
from moonfed.coordinator.records import AttemptId
from moonfed.coordinator.storage.shared_spool import SharedSpool
from moonfed.errors import Unavailable
from moonfed.files import sync_directory, sync_file

_log = logging.getLogger(__name__)


class Spool:
    """The updates of open rounds below `root`. Blocking.

    With `shared`, an update is also copied to an object store before it is acknowledged, so that the coordinator that
    reduces the round can fetch it.
    """

    def __init__(self, root: Path, shared: SharedSpool | None = None) -> None:
        self._root, self._shared = root, shared
        self._durable: set[AttemptId] = set()  # attempts whose directories are, except for the newest updates' names

    def attempt_directory(self, attempt: AttemptId) -> Path:
        """Return the directory of an attempt; it exists until the attempt is over."""
        return self._root / attempt.run / f"{attempt.round}-{attempt.attempt}"

    def incoming_directory(self, attempt: AttemptId, device: str) -> Path:
        """Return the directory in which a device's blobs are received, each named by its sha256."""
        return self.attempt_directory(attempt) / "incoming" / device

    def reduced_directory(self, attempt: AttemptId) -> Path:
        """Return the directory in which the attempt's global state is computed."""
        return self.attempt_directory(attempt) / "reduced"

    def make_staging_directory(self, attempt: AttemptId) -> Path:
        """Create an empty directory in which the files of a local update are checked."""
        self.attempt_directory(attempt).mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix="staging-", dir=self.attempt_directory(attempt)))

    def update_file(self, attempt: AttemptId, device: str, role: str) -> Path:
        """Return the path of one role's file of a device's checked update; it need not exist."""
        return self._updates(attempt) / role / device

    def holds(self, attempt: AttemptId, device: str, role: str, ref: BlobRef) -> bool:
        """Verify one role's file of an update; fetch it first if another coordinator received it. Raises NotFound."""
        path = self.update_file(attempt, device, role)
        if self._shared and not (path.exists() and ref_of_file(path) == ref):
            self._shared.fetch(attempt, device, role, path, ref.sha256)
        return ref_of_file(path) == ref

    def put(self, attempt: AttemptId, device: str, checked: Mapping[str, Path]) -> None:
        """Move an update's checked, fsynced files, by role, into place, replacing an update that has no receipt.

        Their names are durable once `sync` has been called.
        """
        roles = list(checked)
        places = {role: self.update_file(attempt, device, role) for role in roles}
        for number, role in enumerate(roles):
            places[role].parent.mkdir(parents=True, exist_ok=True)
            if checked[role] in [checked[later] for later in roles[number + 1 :]]:  # two roles may hold the same bytes
                shutil.copyfile(checked[role], places[role])
                sync_file(places[role])
            else:
                os.replace(checked[role], places[role])
        if self._shared:
            self._shared.put(attempt, device, places)

    def sync(self, attempts: Iterable[AttemptId]) -> None:
        """Make the file names of these attempts' updates durable, fsyncing each directory once."""
        for attempt in set(attempts):
            updates = self._updates(attempt)
            for directory in updates.iterdir():
                sync_directory(directory)
            if attempt not in self._durable:
                for directory in [updates, *list(updates.parents)[:4]]:  # up to the state
                    sync_directory(directory)
                self._durable.add(attempt)

    def delete_update(self, attempt: AttemptId, device: str) -> None:
        """Delete one device's update."""
        for path in self._updates(attempt).glob(f"*/{device}"):
            path.unlink(missing_ok=True)
        if self._shared:
            with _cleanup_deferred_if_unavailable():
                self._shared.delete_update(attempt, device)

    def delete_local(self, attempt: AttemptId) -> None:
        """Delete an attempt's files on this machine."""
        self._durable.discard(attempt)
        shutil.rmtree(self.attempt_directory(attempt), ignore_errors=True)

    def delete(self, attempt: AttemptId) -> None:
        """Delete the updates of an attempt that is over."""
        self.delete_local(attempt)
        if self._shared:
            with _cleanup_deferred_if_unavailable():
                self._shared.delete(attempt)

    def delete_run(self, run: str) -> None:
        """Delete all updates of a run."""
        for attempt in list(self._durable):
            if attempt.run == run:
                self._durable.discard(attempt)
        shutil.rmtree(self._root / run, ignore_errors=True)
        self.delete_shared_except(run, ())

    def delete_local_except(self, attempts: Collection[AttemptId]) -> None:
        """Delete the files that a killed coordinator left on this machine, except those of the given attempts."""
        self._durable.difference_update(set(self._durable) - set(attempts))
        kept = {self.attempt_directory(attempt) for attempt in attempts}
        for directory in self._root.glob("*/*"):
            if directory not in kept:
                shutil.rmtree(directory, ignore_errors=True)

    def delete_shared_except(self, run: str, attempts: Collection[AttemptId]) -> None:
        """Delete the shared copies that a killed coordinator left of a run, except those of the given attempts."""
        if self._shared:
            with _cleanup_deferred_if_unavailable():
                self._shared.delete_except(run, attempts)

    def _updates(self, attempt: AttemptId) -> Path:
        return self.attempt_directory(attempt) / "updates"


@contextmanager
def _cleanup_deferred_if_unavailable() -> Iterator[None]:
    """Log an unavailable object store instead of raising: deleting unneeded updates must not delay a run."""
    try:
        yield
    except Unavailable as error:
        _log.warning("cannot delete updates that are no longer needed; the next start retries: %s", error)
