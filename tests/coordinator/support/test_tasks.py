"""Background tasks: a cancelled caller leaves nothing half done, and unexpected failures are logged."""

from __future__ import annotations

import asyncio
import threading

import pytest

from moonfed.coordinator.support.tasks import BackgroundTasks, in_thread
from moonfed.errors import Unavailable


def test_work_in_a_thread_returns_or_raises() -> None:
    assert asyncio.run(in_thread(int, "ff", base=16)) == 255
    with pytest.raises(ValueError, match="invalid literal"):
        asyncio.run(in_thread(int, "x"))


def test_a_cancelled_caller_waits_until_its_thread_has_ended() -> None:
    begun, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        go_on.wait(20)
        ended.set()

    async def scenario() -> None:
        caller = asyncio.create_task(in_thread(work))
        await asyncio.to_thread(begun.wait, 20)
        caller.cancel()
        await asyncio.sleep(0)
        assert not caller.done()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await caller
        assert ended.is_set()

    asyncio.run(scenario())


def test_work_that_must_finish_survives_its_caller() -> None:
    async def scenario() -> None:
        background, go_on, done = BackgroundTasks(), asyncio.Event(), asyncio.Event()

        async def work() -> None:
            await go_on.wait()
            done.set()

        caller = asyncio.create_task(background.finish(work()))
        await asyncio.sleep(0)
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        go_on.set()
        await asyncio.wait_for(done.wait(), 20)

    asyncio.run(scenario())


def test_closing_cancels_all_tasks_and_waits_for_their_cleanup() -> None:
    cleaned_up: list[int] = []

    async def scenario() -> None:
        background = BackgroundTasks()

        async def work(number: int) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)
                cleaned_up.append(number)

        for number in range(3):
            background.spawn(work(number))
        await asyncio.sleep(0)
        await background.close()

    asyncio.run(scenario())
    assert sorted(cleaned_up) == [0, 1, 2]


@pytest.mark.parametrize(
    ("error", "logged"), [(RuntimeError("a bug"), ["a task failed"]), (Unavailable("the disk is away"), [])]
)
def test_only_unexpected_failures_are_logged(
    error: Exception, logged: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    async def fail() -> None:
        raise error

    async def scenario() -> None:
        task = BackgroundTasks().spawn(fail())
        await asyncio.wait([task])
        await asyncio.sleep(0)

    asyncio.run(scenario())
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == logged
