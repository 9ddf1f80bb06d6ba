"""What a run begins with, or goes on with: where it stands, its manifest and its global states, all of them checked."""

from __future__ import annotations

from dataclasses import dataclass

from moonfed.coordinator.records import RunRecord
from moonfed.coordinator.rounds.protocol import kind_of
from moonfed.coordinator.rounds.state import State
from moonfed.coordinator.runs.admission import needed_attempts
from moonfed.coordinator.runs.global_state import Standings, load_standings
from moonfed.coordinator.runs.rollback import fall_back
from moonfed.coordinator.storage.recovery import recovered_state
from moonfed.coordinator.storage.state_directory import StateDirectory
from moonfed.errors import Corrupt, NotFound
from moonfed.manifest import Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class Footing:
    """What it takes to drive a run."""

    state: State
    manifest: Manifest
    standings: Standings


def first_footing(directory: StateDirectory, record: RunRecord) -> Footing:
    """Of a run that has just been recorded. Blocking."""
    return _footing(directory, record, kind_of(record.settings).first)


def regained_footing(directory: StateDirectory, record: RunRecord, state: State) -> Footing:
    """Of a run that stood there when its coordinator ended; a damaged global state gives way to the one before it.

    Blocking. Raises Corrupt, NotFound or OSError for a damaged file that nothing can take the place of.
    """
    directory.forget_shared(record.run, needed_attempts(record, state))
    try:
        return _footing(directory, record, state)
    except (Corrupt, NotFound, OSError):
        if not fall_back(directory, record):
            raise
    return _footing(directory, record, recovered_state(directory.store, record.run))


def _footing(directory: StateDirectory, record: RunRecord, state: State) -> Footing:
    manifest = Manifest.from_bytes(directory.blobs.read(record.manifest))
    return Footing(state=state, manifest=manifest, standings=load_standings(directory, record, manifest))
