from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from moonfed.coordinator.rounds.events import End
from moonfed.coordinator.runs import persistence
from moonfed.coordinator.runs.persistence import CommandRecorder
from moonfed.coordinator.storage.leases import LeaseLost

END = End(status="finished")


class Database:
    """A store whose run is held by another coordinator for a number of attempts."""

    def __init__(self, lost_attempts: int, *, held_elsewhere: bool) -> None:
        self.attempts, self._lost_attempts = 0, lost_attempts
        self.leases = SimpleNamespace(held_elsewhere=lambda run: held_elsewhere)

    def end_run(self, run: str, status: str, reason: str) -> None:
        self.attempts += 1
        if self.attempts <= self._lost_attempts:
            raise LeaseLost(f"run {run!r} is now held by another coordinator")


def record(database: Any) -> None:
    asyncio.run(asyncio.wait_for(CommandRecorder(database, "run").record([END]), 10))


def test_a_run_that_another_coordinator_drives_is_given_up_at_once() -> None:
    database = Database(10**9, held_elsewhere=True)
    with pytest.raises(LeaseLost):
        record(database)
    assert database.attempts == 1


def test_a_lease_that_has_only_expired_is_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(persistence, "RETRY_SECONDS", 0.01)
    database = Database(3, held_elsewhere=False)
    record(database)
    assert database.attempts == 4
