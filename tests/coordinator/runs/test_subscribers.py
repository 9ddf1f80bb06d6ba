"""Subscribers: bounded queues, and slow subscribers."""

from __future__ import annotations

import asyncio

import pytest

from moonfed.control.events import Paused, Progress, RoundOpened, RunEvent
from moonfed.coordinator.runs.subscribers import PROGRESS_LENGTH, QUEUE_LENGTH, Subscribers
from moonfed.errors import Unavailable
from tests.support.streams import collect


def test_a_subscriber_that_falls_behind_is_closed_and_the_others_are_not() -> None:
    async def scenario() -> None:
        subscribers = Subscribers()
        slow, quick = subscribers.add(), subscribers.add()
        seen = []
        for number in range(QUEUE_LENGTH + 10):
            subscribers.publish(RoundOpened(round=number, attempt=1, cohort=()))
            opened = await anext(quick.events())
            assert isinstance(opened, RoundOpened)
            seen.append(opened.round)
        assert seen == list(range(QUEUE_LENGTH + 10))
        received: list[RunEvent] = []
        with pytest.raises(Unavailable, match="fell behind"):
            await collect(slow.events(), received)
        assert len(received) == QUEUE_LENGTH

    asyncio.run(scenario())


def test_progress_is_dropped_first() -> None:
    async def scenario() -> None:
        subscribers = Subscribers()
        subscriber = subscribers.add()
        for _ in range(2 * QUEUE_LENGTH):
            subscribers.publish(Progress(round=1, attempt=1, device="a", fraction=0.5))
        subscribers.publish(Paused())
        subscribers.close()
        kinds = [type(event) async for event in subscriber.events()]
        assert kinds == [Progress] * PROGRESS_LENGTH + [Paused]

    asyncio.run(scenario())
