"""The state directory: the layout of a coordinator's files, and the lock that keeps a second coordinator out.

coordinator.db   runs, rounds, receipts, devices, unless they are on a PostgreSQL server
blobs/           models, plans, graphs, manifests, by sha256; local copies of them with an object store
spool/           updates of open rounds: see `moonfed.coordinator.storage.spool`
authority/       keys and certificates of the authority and the server
operator/        an identity for the operator on this machine
holder           the lease holder name that the last coordinator here used, with a shared database
lock             locked while a coordinator runs
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from moonfed.directory_lock import directory_lock
from moonfed.errors import WrongState


@dataclass(frozen=True, slots=True)
class StateDirectory:
    """The paths below one state directory."""

    root: Path

    @property
    def database(self) -> Path:
        """SQLite's file."""
        return self.root / "coordinator.db"

    @property
    def blobs(self) -> Path:
        """The blobs, or local copies of them."""
        return self.root / "blobs"

    @property
    def spool(self) -> Path:
        """The updates of open rounds."""
        return self.root / "spool"

    @property
    def authority(self) -> Path:
        """The keys and certificates of the authority and the server."""
        return self.root / "authority"

    @property
    def operator(self) -> Path:
        """The local operator's identity."""
        return self.root / "operator"

    @property
    def holder(self) -> Path:
        """The file with the lease holder name that the last coordinator here used."""
        return self.root / "holder"

    @property
    def used_before(self) -> bool:
        """True once a coordinator has created more than its database here."""
        return self.authority.exists() or self.blobs.exists()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Create the directory if needed and hold its lock; raises WrongState if another coordinator holds it."""
        with directory_lock(self.root, self._taken):
            yield

    def _taken(self, process: str) -> WrongState:
        return WrongState(f"another coordinator (process {process}) uses {self.root}; stop it, or give another --state")
