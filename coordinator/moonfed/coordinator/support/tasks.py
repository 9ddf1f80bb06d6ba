"""Background tasks, which outlive the call that started them, so a cancelled caller leaves nothing half done."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, ParamSpec, TypeVar

from moonfed.coordinator.support.error_log import log_error
from moonfed.errors import MoonfedError

_log = logging.getLogger(__name__)
T = TypeVar("T")
P = ParamSpec("P")


async def in_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run blocking work in a thread; a cancelled caller still waits until it ends."""
    thread = start_in_thread(work, *args, **kwargs)
    try:
        return await asyncio.shield(thread)
    except asyncio.CancelledError:
        await asyncio.wait([thread])
        raise


def start_in_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
    """Start blocking work in a thread, without the cost of a separate task and context."""
    return asyncio.get_running_loop().run_in_executor(None, partial(work, *args, **kwargs))


class BackgroundTasks:
    """Running tasks; unexpected failures are logged."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a task."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    async def finish(self, work: Coroutine[Any, Any, T]) -> T:
        """Await work that continues even if the caller is cancelled."""
        return await asyncio.shield(self.spawn(work))

    async def close(self) -> None:
        """Cancel all tasks and wait for them."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception) and not isinstance(error, MoonfedError):  # ours reach their caller
            log_error(_log, "a task failed", error)
