"""Rollback of a damaged global state to the previous one, file by file, logged as critical."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from moonfed.blobs.store import BlobRef
from moonfed.bundle.manifest import MODEL
from moonfed.coordinator.records import AttemptId, RoundRecord, RunRecord
from moonfed.coordinator.rounds.protocol import round_protocol
from moonfed.coordinator.runs.acceptance import needed_attempts
from moonfed.coordinator.storage.blobs.blob_store import BlobStore
from moonfed.coordinator.storage.opening import Storage
from moonfed.coordinator.storage.recovery import recovered_state
from moonfed.coordinator.storage.rounds import UNDER_WAY
from moonfed.coordinator.storage.store import Store
from moonfed.coordinator.storage.transient_errors import as_transient
from moonfed.encodings import ENCODED_MODEL
from moonfed.errors import Corrupt, NotFound

_log = logging.getLogger(__name__)
_ONE_MODEL = {MODEL, ENCODED_MODEL}  # the two must encode the same model
Blobs = Mapping[str, BlobRef]


def roll_back(storage: Storage, record: RunRecord) -> bool:
    """Replace the damaged files of the newest global state with those of the state before it. Blocking.

    Returns True if anything was replaced. An open round started from the damaged state, and is abandoned, with all
    updates of its earlier attempts. Raises Corrupt, NotFound or OSError if the previous state is not intact, or if the
    run is asynchronous: its devices train on many states.
    """
    store = storage.store
    newest = store.latest_round(record.run, "committed")
    problems = damage(storage.blobs, newest.blobs) if newest else {}
    if newest is None or not problems:
        return False
    if not round_protocol(record.settings).can_roll_back:
        raise next(iter(problems.values()))
    roles, replacements = _replacements(store, storage.blobs, newest, problems)
    spooled = needed_attempts(record, recovered_state(store, record.run))
    what, before = ", ".join(sorted(problems)), newest.id.round - 1
    damaged = f"files of round {before + 1} are damaged ({what}: {next(iter(problems.values()))})"
    reason = f"{damaged}; those of round {before} are used instead"
    open_attempt = _open_attempt(store, record.run)
    released = store.replace_global_state(newest.id, roles, replacements, open_attempt, reason)
    storage.garbage_collector.collect(released)
    for attempt in spooled:
        storage.spool.delete(attempt)
    _log.critical("run %r: %s; check the disk", record.run, reason)
    return True


def damage(blob_store: BlobStore, blobs: Blobs) -> dict[str, Exception]:
    """Return the problems of those files, by role, that are damaged or missing. Blocking."""
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


def _replacements(
    store: Store, blob_store: BlobStore, newest: RoundRecord, problems: Mapping[str, Exception]
) -> tuple[set[str], Blobs]:
    """Return the roles to replace and their earlier, whole files; a run's initial state may lack some."""
    roles = {*problems, *(_ONE_MODEL & newest.blobs.keys() if _ONE_MODEL & problems.keys() else ())}
    earlier = store.global_state(newest.id.run, newest.id.round - 1)
    required = roles & _ONE_MODEL if newest.id.round == 1 else roles
    if not required <= earlier.keys() or damage(blob_store, {role: earlier[role] for role in roles & earlier.keys()}):
        raise next(iter(problems.values()))
    return roles, {role: earlier[role] for role in roles & earlier.keys()}


def _open_attempt(store: Store, run: str) -> AttemptId | None:
    last = store.latest_round(run)
    return last.id if last and last.status in UNDER_WAY else None
