"""The state directory: where everything of a coordinator lies, and the lock that keeps a second one out.

coordinator.db   runs, rounds, receipts, devices, unless they lie on a PostgreSQL server
blobs/           models, plans, graphs, manifests, by sha256; copies of them if they lie in an object store
spool/           updates of open rounds: RUN/ROUND-ATTEMPT/updates/DEVICE/ROLE
authority/       the authority's and the server's keys and certificates
operator/        an identity for the operator on this machine
holder           what the last coordinator here called itself, if others share its database
lock             held while a coordinator runs
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from moonfed.blobs import BlobDirectory, BlobRef, ref_of_file
from moonfed.coordinator.records import AttemptId
from moonfed.coordinator.storage.blobs.blob_store import BlobStore
from moonfed.coordinator.storage.blobs.object_client import Objects
from moonfed.coordinator.storage.blobs.object_store import ObjectBlobs
from moonfed.coordinator.storage.blobs.ownership import DirectoryPlace, ObjectPlace
from moonfed.coordinator.storage.blobs.pins import Pins
from moonfed.coordinator.storage.db import postgres, sqlite
from moonfed.coordinator.storage.disk_budget import DiskBudget
from moonfed.coordinator.storage.shared_spool import SharedSpool
from moonfed.coordinator.storage.store import Store
from moonfed.errors import Corrupt, Unavailable, WrongState
from moonfed.files import make_directories, sync_directory, sync_file, write_durably

_log = logging.getLogger(__name__)
HOLDER_FILE = "holder"


@dataclass(frozen=True, slots=True, kw_only=True)
class StateDirectory:
    """An opened and locked state directory."""

    root: Path
    store: Store
    blobs: BlobStore
    budget: DiskBudget
    pins: Pins
    shared: SharedSpool | None = None  # with an object store: updates must be there before they are acknowledged

    def spool(self, attempt: AttemptId) -> Path:
        """Where the updates of one attempt lie until it is over."""
        return self.root / "spool" / attempt.run / f"{attempt.round}-{attempt.attempt}"

    def update_file(self, attempt: AttemptId, device: str, role: str) -> Path:
        """Where one role's file of a device's checked update lies, or would lie."""
        return self._updates(attempt, device) / role

    def has_update(self, attempt: AttemptId, device: str, role: str, ref: BlobRef) -> bool:
        """Whether that file is whole; it is fetched if another coordinator has received it. NotFound if none has."""
        path = self.update_file(attempt, device, role)
        if self.shared and not (path.exists() and ref_of_file(path) == ref):
            self.shared.fetch(attempt, device, path, ref.sha256)
        return ref_of_file(path) == ref

    def incoming(self, attempt: AttemptId, device: str) -> Path:
        """Where the blobs of a device's update lie while they are received, by sha256."""
        return self.spool(attempt) / "incoming" / device

    def new_taking_place(self, attempt: AttemptId) -> Path:
        """An empty directory for the files of an update that lies on this machine already, while they are checked."""
        self.spool(attempt).mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix="taking-", dir=self.spool(attempt)))

    def put_update(self, attempt: AttemptId, device: str, checked: Mapping[str, Path]) -> None:
        """Moves checked, durable files, by role, to their places; what stood there had no receipt.

        Their names there are durable after `sync_updates`.
        """
        place = self._updates(attempt, device)
        place.mkdir(parents=True, exist_ok=True)
        roles = list(checked)
        for number, role in enumerate(roles):
            if checked[role] in [checked[later] for later in roles[number + 1 :]]:  # two roles may hold the same bytes
                shutil.copyfile(checked[role], place / role)
                sync_file(place / role)
            else:
                os.replace(checked[role], place / role)
        if self.shared:
            self.shared.put(attempt, device, [place / role for role in roles])

    def sync_updates(self, updates: Iterable[tuple[AttemptId, str]]) -> None:
        """Makes the names of devices' updates in attempts durable, each directory's once."""
        places = [self._updates(attempt, device) for attempt, device in updates]
        above = {directory for place in places for directory in list(place.parents)[:5]}  # up to the state
        for directory in [*places, *above]:
            sync_directory(directory)

    def _updates(self, attempt: AttemptId, device: str) -> Path:
        return self.spool(attempt) / "updates" / device

    def forget_update(self, attempt: AttemptId, device: str) -> None:
        """Deletes a device's spooled update."""
        shutil.rmtree(self._updates(attempt, device), ignore_errors=True)
        if self.shared:
            with _left_for_the_next_start():
                self.shared.forget_update(attempt, device)

    def forget_here(self, attempt: AttemptId) -> None:
        """Deletes what lies on this machine of an attempt."""
        shutil.rmtree(self.spool(attempt), ignore_errors=True)

    def forget(self, attempt: AttemptId) -> None:
        """Deletes the spooled updates of an attempt that is over."""
        self.forget_here(attempt)
        if self.shared:
            with _left_for_the_next_start():
                self.shared.forget(attempt)

    def forget_shared(self, run: str, attempts: Collection[AttemptId] = ()) -> None:
        """Deletes what a killed coordinator left of a run in the object store, but for some attempts."""
        if self.shared:
            with _left_for_the_next_start():
                self.shared.forget_all_but(run, attempts)

    def forget_run(self, run: str) -> None:
        """Deletes what the spool holds of a run."""
        shutil.rmtree(self.root / "spool" / run, ignore_errors=True)
        self.forget_shared(run)

    def forget_all_but(self, attempts: Collection[AttemptId]) -> None:
        """Deletes what a killed coordinator left of attempts that are over."""
        kept = {self.spool(attempt) for attempt in attempts}
        for directory in (self.root / "spool").glob("*/*"):
            if directory not in kept:
                shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def _left_for_the_next_start() -> Iterator[None]:
    """Nothing depends on the going of what is not needed any more: a run must not wait for an object store for that."""
    try:
        yield
    except Unavailable as error:
        _log.warning("updates that are not needed any more stay until the next start: %s", error)


@contextmanager
def open_state(
    root: Path, database: str = "", blobs: str = "", disk_budget: int | None = None
) -> Iterator[StateDirectory]:
    """Opens a state directory, new or old, for this process alone.

    `database`: a PostgreSQL server's; else SQLite's file in the directory. `blobs`: an object store's; else files in
    the directory. `disk_budget`: bytes that the directory may hold. Raises WrongState if another coordinator holds the
    directory or the blobs are another database's, Corrupt if the database is damaged or gone, Unavailable if a server
    cannot be reached.
    """
    make_directories(root, mode=0o700)
    with _locked(root):
        # The database is whole before anything else is made, so a first start that was killed can be made again.
        used_before = any((root / name).exists() for name in ("authority", "blobs"))
        store = postgres.open_store(database, used_before=used_before) if database else _open_file(root, used_before)
        try:
            directory = _opened(root, store, blobs, DiskBudget(root, disk_budget))
            _inherit(root, store)
            yield directory
        finally:
            store.close()


def _opened(root: Path, store: Store, blobs: str, budget: DiskBudget) -> StateDirectory:
    pins = Pins(store.pins)
    if not blobs:
        files = BlobDirectory(root / "blobs")
        store.claim_blobs(DirectoryPlace(files.root))
        return StateDirectory(root=root, store=store, blobs=files, budget=budget, pins=pins)
    objects = Objects(blobs)
    store.claim_blobs(ObjectPlace(objects))
    copies, shared = ObjectBlobs(objects, root / "blobs"), SharedSpool(objects)
    return StateDirectory(root=root, store=store, blobs=copies, budget=budget, pins=pins, shared=shared)


def _inherit(root: Path, store: Store) -> None:
    """Takes over what the last coordinator with this directory held: it has ended, since the directory is ours.

    Each start has a name of its own. So if the directory was copied, and both copies are in use, the runs change hands
    when the second one starts, and no two coordinators ever hold the same.
    """
    if not store.leases.holder:
        return
    path = root / HOLDER_FILE
    before = path.read_text().split() if path.is_file() else []
    # Whoever starts after a kill in the middle of this must know every name that the leases may bear.
    write_durably(path, "\n".join([*before, store.leases.holder, ""]).encode())
    for holder in before:
        store.inherit(holder)
    write_durably(path, f"{store.leases.holder}\n".encode())


def _open_file(root: Path, used_before: bool) -> Store:
    path = root / sqlite.DATABASE_FILE
    if _is_empty(path) and used_before:
        raise Corrupt(
            f"{path} is gone or empty, though {root} was in use: restore the database from a backup, "
            "or move the whole state directory away to start anew"
        )
    return sqlite.open_store(path)


def _is_empty(path: Path) -> bool:
    return not path.is_file() or path.stat().st_size == 0


@contextmanager
def _locked(root: Path) -> Iterator[None]:
    descriptor = os.open(root / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.read(descriptor, 32).decode().strip() or "unknown"
            raise WrongState(
                f"another coordinator (process {holder}) uses {root}; stop it, or give another --state"
            ) from error
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
        yield
    finally:
        os.close(descriptor)
