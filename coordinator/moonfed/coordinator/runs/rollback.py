"""What takes the place of a damaged global state: the one before it, file by file, loudly. Nothing damaged is used."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from moonfed.blobs import BlobRef
from moonfed.coordinator.records import AttemptId, RoundRecord, RunRecord
from moonfed.coordinator.storage.blobs.garbage_collection import discard
from moonfed.coordinator.storage.rounds import UNDER_WAY
from moonfed.coordinator.storage.state_directory import StateDirectory
from moonfed.coordinator.storage.transient_errors import as_passing
from moonfed.encodings import ENCODED_MODEL
from moonfed.errors import Corrupt, NotFound
from moonfed.manifest import MODEL

_log = logging.getLogger(__name__)
_ONE_MODEL = {MODEL, ENCODED_MODEL}  # devices must begin with what the coordinator believes that they have
Blobs = Mapping[str, BlobRef]


def roll_back(directory: StateDirectory, record: RunRecord) -> bool:
    """Puts files of the global state before it in the place of the newest one's damaged files. Blocking.

    A round that is open began with the damaged state, and is abandoned. Whether anything was replaced. Raises Corrupt,
    NotFound or OSError if that cannot be done: there is no state before it, that is damaged too, or the run is
    asynchronous, whose devices are at work with many.
    """
    newest = directory.store.latest_round(record.run, "committed")
    problems = damage(directory, newest.blobs) if newest else {}
    if newest is None or not problems:
        return False
    if record.settings.asynchronous:
        raise next(iter(problems.values()))
    roles, replacing = _replacing(directory, newest, problems)
    what, before = ", ".join(sorted(problems)), newest.id.round - 1
    reason = f"the {what} of round {before + 1} is damaged ({next(iter(problems.values()))}); round {before}'s is used"
    open_attempt = _open_attempt(directory, record.run)
    discard(directory, directory.store.replace_global_state(newest.id, roles, replacing, open_attempt, reason))
    if open_attempt:
        directory.forget(open_attempt)
    _log.critical("run %r: %s; check the disk", record.run, reason)
    return True


def damage(directory: StateDirectory, blobs: Blobs) -> dict[str, Exception]:
    """What is wrong with those of the files, by role, that are damaged or gone. Blocking."""
    found = {role: _problem(directory, ref) for role, ref in blobs.items()}
    return {role: problem for role, problem in found.items() if problem}


def _problem(directory: StateDirectory, ref: BlobRef) -> Exception | None:
    try:
        directory.blobs.verified_path(ref)
    except (Corrupt, NotFound, OSError) as error:
        if as_passing(error):
            raise
        return error
    return None


def _replacing(
    directory: StateDirectory, newest: RoundRecord, problems: Mapping[str, Exception]
) -> tuple[set[str], Blobs]:
    """The roles to replace, and the earlier files by role, whole; the run's beginning may not have had all of them."""
    roles = {*problems, *(_ONE_MODEL & newest.blobs.keys() if _ONE_MODEL & problems.keys() else ())}
    earlier = directory.store.global_state(newest.id.run, newest.id.round - 1)
    required = roles & _ONE_MODEL if newest.id.round == 1 else roles
    if not required <= earlier.keys() or damage(directory, {role: earlier[role] for role in roles & earlier.keys()}):
        raise next(iter(problems.values()))
    return roles, {role: earlier[role] for role in roles & earlier.keys()}


def _open_attempt(directory: StateDirectory, run: str) -> AttemptId | None:
    last = directory.store.latest_round(run)
    return last.id if last and last.status in UNDER_WAY else None
