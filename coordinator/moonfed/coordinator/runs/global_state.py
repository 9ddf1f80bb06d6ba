"""The global states that devices may be training with: the newest, and in asynchronous runs some before it."""

from __future__ import annotations

from collections.abc import Mapping

from moonfed.bundle.manifest import Manifest
from moonfed.coordinator.records import AttemptId, RunRecord
from moonfed.coordinator.rounds.sizes import models_needed
from moonfed.coordinator.runs.assignments import GlobalState, load_global_state
from moonfed.coordinator.storage.blobs.blob_store import BlobStore
from moonfed.coordinator.storage.store import Store
from moonfed.errors import WrongState


class GlobalStates:
    """A run's last few global states, by the round that starts from each."""

    def __init__(self, by_round: Mapping[int, GlobalState], limit: int) -> None:
        self._by_round, self._limit = dict(by_round), limit

    def __getitem__(self, round_: int) -> GlobalState:
        """Return the global state that a round starts from; raises WrongState if that round is over."""
        try:
            return self._by_round[round_]
        except KeyError:  # it closed a moment ago
            raise WrongState(f"round {round_} has ended; wait for the next assignment") from None

    def add(self, attempt: AttemptId, state: GlobalState) -> None:
        """Add the global state that an attempt committed."""
        self._by_round[attempt.round + 1] = state
        for round_ in [round_ for round_ in self._by_round if round_ <= attempt.round + 1 - self._limit]:
            del self._by_round[round_]


def load_global_states(store: Store, blobs: BlobStore, record: RunRecord, manifest: Manifest) -> GlobalStates:
    """Load a run's global states; raises Corrupt if a file of the newest one is damaged. Blocking."""
    newest, limit = store.latest_round(record.run, "committed"), models_needed(record.settings)
    begins = newest.id.round + 1 if newest else 1
    states = {begins: load_global_state(store, blobs, record, manifest)}
    for round_ in range(max(1, begins + 1 - limit), begins):
        states[round_] = _earlier(store, record, round_)
    return GlobalStates(states, limit)


def _earlier(store: Store, record: RunRecord, round_: int) -> GlobalState:
    """Load the global state that an earlier round started from."""
    before = store.round(AttemptId(run=record.run, round=round_ - 1, attempt=1)) if round_ > 1 else None
    return GlobalState(blobs=before.blobs if before else store.initial_state(record.run))
