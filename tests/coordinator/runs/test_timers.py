"""Timers of a run."""

from __future__ import annotations

import asyncio

from moonfed.coordinator.rounds.events import DeadlinePassed, RetryDue, StartTimer, TimedEvent
from moonfed.coordinator.runs.timers import Timers


def test_a_timer_is_removed_once_it_has_fired_or_its_attempt_has_ended() -> None:
    async def scenario() -> None:
        fired: asyncio.Queue[TimedEvent] = asyncio.Queue()
        timers = Timers(fired.put_nowait)
        soon = RetryDue(round=1, attempt=1)
        timers.start(StartTimer(seconds=0, event=soon))
        timers.start(StartTimer(seconds=60, event=DeadlinePassed(round=1, attempt=1)))
        assert await fired.get() == soon
        assert list(timers._running) == [DeadlinePassed(round=1, attempt=1)]
        timers.start(StartTimer(seconds=60, event=DeadlinePassed(round=1, attempt=2)))
        assert list(timers._running) == [DeadlinePassed(round=1, attempt=2)]
        timers.cancel()
        assert not timers._running

    asyncio.run(scenario())
