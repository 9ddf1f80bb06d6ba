from __future__ import annotations

import asyncio
import logging

import pytest

from moonfed.coordinator.support.polling import poll

ROUNDS = 7


def test_only_the_first_of_several_failures_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    outcomes = iter([None, "lost", "lost", None, "gone", "gone", None])
    asked = []

    async def refresh() -> None:
        asked.append(outcome := next(outcomes))
        if outcome:
            raise OSError(outcome)

    async def until_exhausted() -> None:
        task = asyncio.create_task(poll(refresh, 0, logging.getLogger("polled"), "cannot read the register"))
        while len(asked) < ROUNDS:
            await asyncio.sleep(0)
        task.cancel()

    asyncio.run(until_exhausted())
    messages = [record.getMessage() for record in caplog.records if record.name == "polled"]
    assert len(messages) == 2
    assert all("cannot read the register" in message for message in messages)
    assert "lost" in caplog.text
    assert "gone" in caplog.text
