"""Expected results of a run, from the senders of the updates and numpy alone: nothing here is the coordinator's."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from moonfed.blobs.store import BlobRef
from moonfed.blobs.tensors import Vector, model_size
from moonfed.control.run_settings import RunSettings
from moonfed.coordinator.records import RoundRecord
from tests.support.coordinator import PARAMETERS, SIZE, model_values

Key = tuple[int, int, str]  # round, attempt, device: the attempt that the update began with
IS_PARAMETER = np.arange(SIZE) < model_size(PARAMETERS)  # the statistics' names come behind


@dataclass(frozen=True, eq=False, kw_only=True)
class Sent:
    """An update as a device sent it."""

    vector: Vector
    samples: int
    loss: float
    ref: BlobRef


@dataclass
class Ledger:
    """One run. `sent`: updates that may count; `receipts`: updates that must, as long as their round continues.

    An attempt that is abandoned for lack of updates holds those that it has for the next one.
    """

    run: str
    settings: RunSettings
    models: list[Vector]  # the global models, beginning with what the run started from
    sent: dict[Key, list[Sent]] = field(default_factory=dict)
    receipts: dict[Key, Sent] = field(default_factory=dict)
    damaged: set[Key] = field(default_factory=set)  # on the coordinator's disk, after their receipt
    counted: dict[Key, int] = field(default_factory=dict)  # the model that each is in
    abandoned: set[tuple[int, int]] = field(default_factory=set)
    held: dict[str, int] = field(default_factory=dict)  # the attempt that each device's update is held from
    history: list[object] = field(default_factory=list)  # what is on record of past rounds
    gone: set[int] = field(default_factory=set)  # models that were not to be kept

    def send(self, key: Key, sent: Sent) -> None:
        self.sent.setdefault(key, []).append(sent)

    def acknowledge(self, key: Key, sent: Sent) -> None:
        assert self.receipts.setdefault(key, sent).ref == sent.ref, f"{key} has receipts for two different updates"

    @property
    def uncounted(self) -> set[Key]:
        """Return updates with a receipt whose attempt is neither committed nor abandoned, or that are held."""
        stopped = {1} if self.settings.asynchronous and self.abandoned else set()  # the only end of such a round
        return {
            key
            for key in self.receipts.keys() - self.counted.keys() - self.damaged
            if (key[:2] not in self.abandoned or self.is_held(key)) and key[1] not in stopped
        }

    def is_held(self, key: Key) -> bool:
        """Return True if the next attempt at the current round may count an update of an abandoned one."""
        return key[0] == len(self.models) and self.held.get(key[2]) == key[1]

    def read(self, records: Sequence[RoundRecord], content: Callable[[BlobRef], bytes]) -> None:
        """Read all recorded past rounds, and check them."""
        facts: list[object] = [
            (
                (each.id, each.status, each.cohort, each.counted, each.reason, each.seconds),
                (each.bases, each.replacements, each.reused, each.reusable),
            )
            for each in records
        ]
        assert facts[: len(self.history)] == self.history, "what is on record does not change"
        for record in records[len(self.history) :]:
            if record.status == "committed":
                self._committed(record, content)
            else:
                assert record.reason, "whoever sent an update in vain can be told why"
                assert not record.counted
                assert not record.blobs
                self._abandoned(record)
        self.history = facts
        held = {each.id.round for each in records if each.model}
        assert held == set(range(1, len(self.models))) - self.gone, "the models that are kept"

    def _abandoned(self, record: RoundRecord) -> None:
        round_, attempt = record.id.round, record.id.attempt
        self._reuses(record)
        whole = {key[2]: key[1] for key in self.receipts.keys() - self.damaged if key[:2] == (round_, attempt)}
        kept = {device: begun for device, begun in self.held.items() if (round_, begun, device) not in self.damaged}
        if "required updates counted" in record.reason and attempt < self.settings.max_attempts:
            assert {**kept, **whole}.items() <= record.reusable.items(), "what was acknowledged is held"
        else:
            assert not record.reusable
        self.abandoned.add((round_, attempt))
        self.held = dict(record.reusable)

    def _reuses(self, record: RoundRecord) -> None:
        """Check which of the held updates an attempt counts: as many as it has devices."""
        assert record.reused.items() <= self.held.items()
        drawn = len(record.cohort) - len(record.replacements)
        assert len(record.reused) == min(len(self.held), drawn)
        self.held = dict(record.reused)

    def prune(self, last: int, every: int, *, running: bool) -> None:
        """Retain only the last models and those of every N-th round.

        During the run, also retain those that devices may still request, and the one before the newest.
        """
        newest = len(self.models) - 1
        if running:
            last = max(last, 2, 1 + self.settings.max_staleness if self.settings.asynchronous else 1)
        self.gone |= {round_ for round_ in range(1, newest - last + 1) if not (every and round_ % every == 0)}

    def _committed(self, record: RoundRecord, content: Callable[[BlobRef], bytes]) -> None:
        round_, attempt = record.id.round, record.id.attempt
        assert round_ == len(self.models), "one model after the other"
        self._reuses(record)
        keys: list[Key] = [
            (record.bases.get(device, round_), record.reused.get(device, attempt), device) for device in record.counted
        ]
        assert len(set(record.counted)) == len(keys)
        assert not set(keys) & (self.counted.keys() | self.damaged), "an update counts once, and whole"
        if not self.settings.asynchronous:
            ours = {(round_, attempt, device) for device in record.cohort}
            ours |= {(round_, begun, device) for device, begun in self.held.items()}
            whole = ours & (self.receipts.keys() - self.damaged)
            assert whole <= set(keys), "what was acknowledged counts"
        assert record.model
        model = model_values(content(record.model))
        assert any(self._explains(keys, sent, model, record) for sent in self._possible(keys)), "the model is the mean"
        self.counted |= dict.fromkeys(keys, round_)
        self.held = {}
        self.models.append(model)
        self.prune(self.settings.keep_last, self.settings.keep_every, running=True)

    def _possible(self, keys: Sequence[Key]) -> Iterator[tuple[Sent, ...]]:
        """The updates that may have counted: the acknowledged ones, or any without a reply."""
        return itertools.product(*([self.receipts[key]] if key in self.receipts else self.sent[key] for key in keys))

    def _explains(self, keys: Sequence[Key], sent: Sequence[Sent], model: Vector, record: RoundRecord) -> bool:
        weights = [each.samples for each in sent]
        updates = [self._as_if_fresh(key[0], each.vector) for key, each in zip(keys, sent, strict=True)]
        loss = sum(each.samples * each.loss for each in sent) / sum(weights)
        return np.allclose(model, np.average(updates, axis=0, weights=weights), rtol=1e-5, atol=1e-6) and math.isclose(
            record.metrics["train_loss"], loss, rel_tol=1e-9
        )

    def _as_if_fresh(self, begun: int, vector: Vector) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """FedBuff: w + (y - w₀)/√(1 + τ) for parameters; statistics go towards y from w."""
        newest, before = self.models[-1].astype(np.float64), self.models[begun - 1].astype(np.float64)
        origin = np.where(IS_PARAMETER, before, newest)
        return np.asarray(newest + (vector - origin) / math.sqrt(len(self.models) - begun + 1))
