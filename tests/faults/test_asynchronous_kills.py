"""An asynchronous run whose coordinator is killed at random moments counts each acknowledged update in one model.

The updates in each model depend on the order of arrival, so there is no undisturbed run to compare with. Every model is
recomputed with numpy from the recorded updates and the models that they started from.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from moonfed.blobs.tensors import Vector
from moonfed.coordinator.storage.db import sqlite
from moonfed.fleet.assignment import Assignment
from tests.faults.fleet import SAMPLES, Coordinators, bundle_of, devices_at, trained, until
from tests.faults.kills import RUN, Reaper, kills
from tests.support.coordinator import model_values

pytestmark = pytest.mark.slow

ROUNDS, BUFFER = 20, 2
SLOW, BEHIND = "cam-3", 2  # hands in when the others are so many models further
OVER = "the run has finished|run .* has ended|the run's last"  # what a late device is told
BUNDLE = bundle_of(1000)
Update = tuple[str, int]  # whose, and of the round whose model it began with
Record = Mapping[str, int]  # of one round: the devices that it counted, to the rounds that they began with


@dataclass
class Journal(Reaper):
    """Actions of all devices in order: an update exists no earlier than its training and no later than its receipt."""

    entries: list[tuple[str, Update]] = field(default_factory=list)

    def may_train(self, device: str, assignment: Assignment) -> bool:
        others = max((begun for done, (_, begun) in list(self.entries) if done == "trained"), default=0)
        may = super().may_train(device, assignment) and (device != SLOW or others >= assignment.id.round + BEHIND)
        if may:
            self._note("trained", device, assignment)
        return may

    def delivered(self, device: str, assignment: Assignment) -> None:
        self._note("delivered", device, assignment)

    def _note(self, done: str, device: str, assignment: Assignment) -> None:
        self.entries.append((done, (device, assignment.id.round)))

    def first(self, done: str) -> dict[Update, int]:
        """Return the time of the first such action for each update; after a kill a device may repeat it."""
        found: dict[Update, int] = {}
        for place, (what, update) in enumerate(self.entries):
            if what == done:
                found.setdefault(update, place)
        return found


@pytest.mark.timeout(120 + 4 * kills(8))
def test_each_acknowledged_update_counts_once_with_its_base_over_many_kills(coordinators: Coordinators) -> None:
    journal = Journal(coordinators, kills(8), ROUNDS, allowed=1 + 2 * BEHIND)
    coordinators.serve()
    with devices_at(coordinators, pace=journal, tolerated=OVER) as devices:
        coordinators.start_run(RUN, BUNDLE, ROUNDS, len(SAMPLES), asynchronous=BUFFER, max_staleness=ROUNDS)
        until(lambda: any(device == SLOW for device, _ in journal.first("delivered")))  # its first one is stale
        journal.reap(devices)
        coordinators.serve()
        coordinators.finished(RUN)
    models = [model_values(file, BUNDLE.manifest.tensors) for file in coordinators.models(RUN)]
    coordinators.kill()
    records = recorded(coordinators)
    counted_once(records, journal)
    assert len(models) == ROUNDS + 1
    np.testing.assert_array_equal(models[0], 1.0)
    for round_, record in enumerate(records, start=1):
        np.testing.assert_allclose(models[round_], computed(models, round_, record), rtol=1e-5, atol=1e-6)


def recorded(coordinators: Coordinators) -> list[Record]:
    """Read each round's updates from the database."""
    store = sqlite.open_store(coordinators.state / sqlite.DATABASE_FILE)
    rounds = store.past_rounds(RUN, None, 10 * ROUNDS)
    store.close()
    assert [(found.id.round, found.status) for found in rounds] == [(n, "committed") for n in range(1, ROUNDS + 1)]
    assert all(sorted(found.bases) == sorted(found.counted) for found in rounds)
    return [found.bases for found in rounds]


def counted_once(records: Sequence[Record], journal: Journal) -> None:
    """Assert that no update is in two models, and that each round contains all updates present when it closed."""
    began, delivered = journal.first("trained"), journal.first("delivered")
    counted: set[Update] = set()
    for record in records:
        updates = set(record.items())
        assert len(updates) >= BUFFER
        assert not updates & counted
        assert updates <= began.keys()
        counted |= updates
        closed_after = max(began[update] for update in updates)
        assert {update for update, place in delivered.items() if place < closed_after} <= counted
    assert any(begun < round_ for round_, record in enumerate(records, start=1) for begun in record.values())


def computed(models: Sequence[Vector], round_: int, record: Record) -> Vector:
    """Compute FedBuff's model: the previous one plus the mean change, each change divided by √(1 + its age)."""
    changes = [
        (trained(device, begun, models[begun - 1]).astype(np.float64) - models[begun - 1])
        / math.sqrt(1 + round_ - begun)
        for device, begun in record.items()
    ]
    mean = np.average(changes, axis=0, weights=[SAMPLES[device] for device in record])
    return np.asarray(models[round_ - 1] + mean, dtype=np.float32)
