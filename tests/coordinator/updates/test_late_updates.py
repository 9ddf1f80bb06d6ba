"""Late updates: recorded together, tried again while their round is open, and harmless in a failing database."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from moonfed.coordinator.records import AttemptId
from moonfed.coordinator.support.tasks import BackgroundTasks
from moonfed.coordinator.updates import late_updates
from moonfed.coordinator.updates.late_updates import LateUpdates
from moonfed.errors import Unavailable
from tests.support.store_records import FIRST


class Outcomes:
    """A table whose round stays open for a number of attempts to record, or that cannot be reached once."""

    def __init__(self, open_for: int = 0, *, fails: bool = False) -> None:
        self.calls: list[Mapping[str, AttemptId]] = []
        self._open_for, self._fails = open_for, fails

    def record_late(self, offered: Mapping[str, AttemptId]) -> Mapping[str, AttemptId]:
        self.calls.append(dict(offered))
        if self._fails:
            self._fails = False
            raise Unavailable("the coordinator's database cannot be reached")
        return offered if len(self.calls) <= self._open_for else {}


def recorded(outcomes: Any, *batches: str) -> list[list[str]]:
    """Offer the updates of several batches of devices, each recorded before the next; return those of each call."""

    async def offer() -> None:
        background = BackgroundTasks()
        late = LateUpdates(outcomes, background)
        for batch in batches:
            for device in batch:
                late.add(FIRST, device)
            await asyncio.gather(*background._tasks)

    asyncio.run(offer())
    return [sorted(call) for call in outcomes.calls]


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(late_updates, "RECORD_SECONDS", 0.0)


def test_those_that_come_together_are_recorded_together() -> None:
    assert recorded(Outcomes(), "aba", "c") == [["a", "b"], ["c"]]


def test_those_of_an_open_round_are_tried_again() -> None:
    assert recorded(Outcomes(2), "a") == [["a"]] * 3


def test_after_a_failure_the_next_ones_are_recorded() -> None:
    assert recorded(Outcomes(fails=True), "a", "b") == [["a"], ["b"]]
