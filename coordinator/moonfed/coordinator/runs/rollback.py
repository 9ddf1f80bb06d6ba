"""What takes the place of a damaged global state: the one before it, file by file, loudly. Nothing damaged is used."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from moonfed.blobs import BlobRef
from moonfed.coordinator.records import AttemptId, RoundRecord, RunRecord
from moonfed.coordinator.rounds.protocol import round_protocol
from moonfed.coordinator.storage.blobs.blob_store import BlobStore
from moonfed.coordinator.storage.opening import Storage
from moonfed.coordinator.storage.rounds import UNDER_WAY
from moonfed.coordinator.storage.store import Store
from moonfed.coordinator.storage.transient_errors import as_transient
from moonfed.encodings import ENCODED_MODEL
from moonfed.errors import Corrupt, NotFound
from moonfed.manifest import MODEL

_log = logging.getLogger(__name__)
_ONE_MODEL = {MODEL, ENCODED_MODEL}  # devices must begin with what the coordinator believes that they have
Blobs = Mapping[str, BlobRef]


def roll_back(storage: Storage, record: RunRecord) -> bool:
    """Puts files of the global state before it in the place of the newest one's damaged files. Blocking.

    A round that is open began with the damaged state, and is abandoned. Whether anything was replaced. Raises Corrupt,
    NotFound or OSError if that cannot be done: there is no state before it, that is damaged too, or the run is
    asynchronous, whose devices are at work with many.
    """
    store = storage.store
    newest = store.latest_round(record.run, "committed")
    problems = damage(storage.blobs, newest.blobs) if newest else {}
    if newest is None or not problems:
        return False
    if not round_protocol(record.settings).can_roll_back:
        raise next(iter(problems.values()))
    roles, replacing = _replacing(store, storage.blobs, newest, problems)
    what, before = ", ".join(sorted(problems)), newest.id.round - 1
    reason = f"the {what} of round {before + 1} is damaged ({next(iter(problems.values()))}); round {before}'s is used"
    open_attempt = _open_attempt(store, record.run)
    released = store.replace_global_state(newest.id, roles, replacing, open_attempt, reason)
    storage.garbage_collector.collect(released)
    if open_attempt:
        storage.spool.delete(open_attempt)
    _log.critical("run %r: %s; check the disk", record.run, reason)
    return True


def damage(blob_store: BlobStore, blobs: Blobs) -> dict[str, Exception]:
    """What is wrong with those of the files, by role, that are damaged or gone. Blocking."""
    found = {role: _problem(blob_store, ref) for role, ref in blobs.items()}
    return {role: problem for role, problem in found.items() if problem}


def _problem(blob_store: BlobStore, ref: BlobRef) -> Exception | None:
    try:
        blob_store.verified_path(ref)
    except (Corrupt, NotFound, OSError) as error:
        if as_transient(error):
            raise
        return error
    return None


def _replacing(
    store: Store, blob_store: BlobStore, newest: RoundRecord, problems: Mapping[str, Exception]
) -> tuple[set[str], Blobs]:
    """The roles to replace, and the earlier files by role, whole; the run's beginning may not have had all of them."""
    roles = {*problems, *(_ONE_MODEL & newest.blobs.keys() if _ONE_MODEL & problems.keys() else ())}
    earlier = store.global_state(newest.id.run, newest.id.round - 1)
    required = roles & _ONE_MODEL if newest.id.round == 1 else roles
    if not required <= earlier.keys() or damage(blob_store, {role: earlier[role] for role in roles & earlier.keys()}):
        raise next(iter(problems.values()))
    return roles, {role: earlier[role] for role in roles & earlier.keys()}


def _open_attempt(store: Store, run: str) -> AttemptId | None:
    last = store.latest_round(run)
    return last.id if last and last.status in UNDER_WAY else None
