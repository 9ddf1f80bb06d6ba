"""Opening of a coordinator's storage: the database, the blobs and the spool of one state directory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from moonfed.blobs.store import BlobDirectory
from moonfed.coordinator.storage.blobs.blob_store import BlobStore
from moonfed.coordinator.storage.blobs.garbage_collection import GarbageCollector
from moonfed.coordinator.storage.blobs.object_client import ObjectClient
from moonfed.coordinator.storage.blobs.object_store import ObjectBlobStore
from moonfed.coordinator.storage.blobs.ownership import DirectoryLocation, ObjectLocation
from moonfed.coordinator.storage.blobs.pins import Pins
from moonfed.coordinator.storage.db import postgres, sqlite
from moonfed.coordinator.storage.disk_budget import DiskBudget
from moonfed.coordinator.storage.shared_spool import SharedSpool
from moonfed.coordinator.storage.spool import Spool
from moonfed.coordinator.storage.state_directory import StateDirectory
from moonfed.coordinator.storage.store import Store
from moonfed.errors import Corrupt
from moonfed.files import write_durably


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """The opened parts of a coordinator's storage; callers are passed the ones that they need."""

    directory: StateDirectory
    store: Store
    blobs: BlobStore
    spool: Spool
    pins: Pins
    budget: DiskBudget
    garbage_collector: GarbageCollector


@contextmanager
def open_storage(
    root: Path, database: str = "", blobs: str = "", disk_budget: int | None = None, *, backed_up: bool = False
) -> Iterator[Storage]:
    """Lock a state directory, new or old, and open its storage for this process alone.

    `database`: a PostgreSQL server's URL, else SQLite's file in the directory. `blobs`: an object store's URL, else
    files in the directory. `disk_budget`: bytes that the directory may hold. `backed_up`: True if a server's database
    may be migrated. Raises WrongState if another coordinator holds the directory, the blobs belong to another database,
    or the database may not be migrated, Corrupt if it is damaged or gone, VersionMismatch if this release cannot use
    it, Unavailable if a server cannot be reached.
    """
    directory = StateDirectory(root)
    with directory.locked():
        # Nothing else is created before the database is complete, so a killed first start can be repeated.
        store = _open_store(directory, database, backed_up=backed_up)
        try:
            storage = _open_blobs(directory, store, blobs, DiskBudget(directory.root, disk_budget))
            _inherit_leases(directory.holder, store)
            yield storage
        finally:
            store.close()


def _open_store(directory: StateDirectory, database: str, *, backed_up: bool) -> Store:
    if database:
        return postgres.open_store(database, used_before=directory.used_before, backed_up=backed_up)
    if _is_empty(directory.database) and directory.used_before:
        raise Corrupt(
            f"{directory.database} is gone or empty, though {directory.root} was in use: restore the database from a "
            "backup, or move the whole state directory away to start afresh",
            field="database",
        )
    return sqlite.open_store(directory.database)


def _open_blobs(directory: StateDirectory, store: Store, url: str, budget: DiskBudget) -> Storage:
    blobs: BlobStore
    if url:
        objects = ObjectClient(url)
        store.claim_blobs(ObjectLocation(objects))
        blobs, spool = ObjectBlobStore(objects, directory.blobs), Spool(directory.spool, SharedSpool(objects))
    else:
        blobs, spool = BlobDirectory(directory.blobs), Spool(directory.spool)
        store.claim_blobs(DirectoryLocation(directory.blobs))
    pins = Pins(store.pins)
    collector = GarbageCollector(store, blobs, pins, budget)
    return Storage(
        directory=directory,
        store=store,
        blobs=blobs,
        spool=spool,
        pins=pins,
        budget=budget,
        garbage_collector=collector,
    )


def _inherit_leases(path: Path, store: Store) -> None:
    """Inherit the leases of the last coordinator in this directory, which has ended, since we hold the lock.

    Each start has a name of its own. So if the directory was copied and both copies are in use, the runs change hands
    when the second one starts, and no two coordinators ever hold the same lease.
    """
    if not store.leases.holder:
        return
    previous = path.read_text().split() if path.is_file() else []
    # A start after a kill halfway through must know every name that the leases may bear.
    write_durably(path, "\n".join([*previous, store.leases.holder, ""]).encode())
    for holder in previous:
        store.inherit(holder)
    write_durably(path, f"{store.leases.holder}\n".encode())


def _is_empty(path: Path) -> bool:
    return not path.is_file() or path.stat().st_size == 0
