"""An event loop with a manual clock, whose threads' work is executed in a drawn order.

The work of threads is done between two steps of the loop, one piece at a time, so nothing depends on the machine's
speed: the same seed gives the same course.
"""

from __future__ import annotations

import asyncio
import random
import selectors
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context
from functools import partial
from typing import Any

ENDLESS = 100_000  # pieces of work without coming to rest


class SimulatedLoop(asyncio.SelectorEventLoop):
    """Use it from outside: start work with `create_task`, then `settle` or `advance`."""

    def __init__(self, seed: int) -> None:
        self._now, self._chance = 0.0, random.Random(seed)
        self._pieces: list[tuple[asyncio.Future[Any], Callable[[], Any]]] = []
        self._moments: list[asyncio.TimerHandle] = []
        self._at_rest: asyncio.Future[None] | None = None
        self._done = 0  # pieces of work since it was to settle
        super().__init__(_IdleSelector(self._idle))

    def time(self) -> float:
        return self._now

    def settle(self) -> None:
        """Run until everything waits for the clock or for an outside event."""
        self._at_rest, self._done = self.create_future(), 0
        self.run_until_complete(self._at_rest)

    def advance(self, seconds: float) -> None:
        """Advance the clock; everything settles at each moment at which something is due."""
        end = self._now + seconds
        while True:
            self.settle()
            self._moments = [each for each in self._moments if not each.cancelled() and each.when() > self._now]
            due = min((each.when() for each in self._moments), default=end)
            if due >= end:
                break
            self._now = due
        self._now = end
        self.settle()

    # What asyncio calls; its own signatures are looser than these

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        future: asyncio.Future[Any] = self.create_future()
        self._pieces.append((future, partial(func, *args)))
        return future

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        handle = super().call_at(when, callback, *args, context=context)
        self._moments.append(handle)
        return handle

    def _idle(self) -> None:
        """Return True if only a thread can proceed, or nothing at all."""
        if self._pieces:
            self._done += 1
            assert self._done < ENDLESS, "it never comes to rest"
            self._do(*self._pieces.pop(self._chance.randrange(len(self._pieces))))
        elif self._at_rest and not self._at_rest.done():
            self._at_rest.set_result(None)
        else:
            raise AssertionError("the loop waits for what cannot come")

    def _do(self, future: asyncio.Future[Any], work: Callable[[], Any]) -> None:
        if future.cancelled():
            if self._chance.random() < 0.5:  # the thread had begun, and goes on unheard
                with suppress(Exception):
                    work()
            return
        try:
            result = work()
        except Exception as error:
            future.set_exception(error)
        else:
            future.set_result(result)


class _IdleSelector(selectors.SelectSelector):
    """A selector that raises instead of waiting."""

    def __init__(self, idle: Callable[[], None]) -> None:
        super().__init__()
        self._idle = idle

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout > 0:
            self._idle()
        return super().select(0)
