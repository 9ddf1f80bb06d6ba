"""Starting and resuming runs: the state, the manifest and the checked global states that a driver needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from moonfed.bundle.manifest import Manifest
from moonfed.coordinator.draw import Draw
from moonfed.coordinator.records import EligibilityReport, RunRecord
from moonfed.coordinator.rounds.protocol import round_protocol
from moonfed.coordinator.rounds.state import State
from moonfed.coordinator.runs.acceptance import needed_attempts
from moonfed.coordinator.runs.global_state import GlobalStates, load_global_states
from moonfed.coordinator.runs.rollback import roll_back
from moonfed.coordinator.storage.opening import Storage
from moonfed.coordinator.storage.recovery import recovered_state
from moonfed.errors import Corrupt, NotFound


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """The values that a run's driver starts from."""

    state: State
    manifest: Manifest
    global_states: GlobalStates
    draw: Draw
    eligibility: Mapping[str, EligibilityReport]  # by device


def new_run_context(storage: Storage, record: RunRecord) -> RunContext:
    """Load the context of a run that has just been recorded. Blocking."""
    return _load(storage, record, round_protocol(record.settings).first)


def resumed_run_context(storage: Storage, record: RunRecord, state: State) -> RunContext:
    """Load the context of a run that resumes in a recovered state; a damaged global state is rolled back.

    Blocking. Raises Corrupt, NotFound or OSError for a damaged file that nothing can replace.
    """
    storage.spool.delete_shared_except(record.run, needed_attempts(record, state))
    try:
        return _load(storage, record, state)
    except (Corrupt, NotFound, OSError):
        if not roll_back(storage, record):
            raise
    return _load(storage, record, recovered_state(storage.store, record.run))


def _load(storage: Storage, record: RunRecord, state: State) -> RunContext:
    manifest = Manifest.from_bytes(storage.blobs.read(record.manifest))
    return RunContext(
        state=state,
        manifest=manifest,
        global_states=load_global_states(storage.store, storage.blobs, record, manifest),
        draw=storage.store.draw(record.run),
        eligibility=storage.store.eligibility.of_run(record.run),
    )
