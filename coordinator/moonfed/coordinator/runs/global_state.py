"""The global states that devices may be at work with: the newest, and in asynchronous rounds some before it."""

from __future__ import annotations

from collections.abc import Mapping

from moonfed.coordinator.records import AttemptId, RunRecord
from moonfed.coordinator.runs.assignments import GlobalState, load_global_state
from moonfed.coordinator.storage.blobs.blob_store import BlobStore
from moonfed.coordinator.storage.store import Store
from moonfed.errors import WrongState
from moonfed.manifest import Manifest


class GlobalStates:
    """A run's standings by the round that begins with them; the last few."""

    def __init__(self, by_round: Mapping[int, GlobalState], kept: int) -> None:
        self._by_round, self._kept = dict(by_round), kept

    def __getitem__(self, round_: int) -> GlobalState:
        """What that round's devices begin with; WrongState if they are not waited for any more."""
        try:
            return self._by_round[round_]
        except KeyError:  # it closed a moment ago
            raise WrongState(f"round {round_} has ended; wait for the next assignment") from None

    def after(self, attempt: AttemptId, standing: GlobalState) -> None:
        """An attempt was committed: where the run stands now."""
        self._by_round[attempt.round + 1] = standing
        for round_ in [round_ for round_ in self._by_round if round_ <= attempt.round + 1 - self._kept]:
            del self._by_round[round_]


def load_global_states(store: Store, blobs: BlobStore, record: RunRecord, manifest: Manifest) -> GlobalStates:
    """From the store; Corrupt if a file of the newest global state is damaged. Blocking."""
    newest, kept = store.latest_round(record.run, "committed"), record.settings.models_needed
    begins = newest.id.round + 1 if newest else 1
    standings = {begins: load_global_state(store, blobs, record, manifest)}
    for round_ in range(max(1, begins + 1 - kept), begins):
        standings[round_] = _earlier(store, record, round_)
    return GlobalStates(standings, kept)


def _earlier(store: Store, record: RunRecord, round_: int) -> GlobalState:
    """What a round began with whose model is made already."""
    before = store.round(AttemptId(run=record.run, round=round_ - 1, attempt=1)) if round_ > 1 else None
    return GlobalState(blobs=before.blobs if before else store.initial_state(record.run))
