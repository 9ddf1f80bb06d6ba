"""Whose parts are in memory: streams take turns, so that memory does not grow with the number of devices.

gRPC and we keep some copies of the part of each stream that is under way. So a few streams go on at a time, each for a
moment, rather than all of them at once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from moonfed.transport import PART_SIZE

PLACES = 8  # in each direction; more would not be faster
TURN_SECONDS = 0.5  # then another stream is let in, if one waits
# For one part, while we have little else to do: such a stream is slow and leaves its place to others, so that these
# need not wait for it. It goes on beside them, in small parts where their size is ours to choose.
SLOW_SECONDS = 0.1
LITTLE = 0.3  # of that time
SLOW_BYTES = 16 << 20  # that slow streams in one direction have under way
SMALL_PART = PART_SIZE // 16
Waiting = Callable[[], AbstractContextManager[None]]


class Turns:
    """The places of the streams in one direction."""

    def __init__(self, places: int = PLACES, slow_bytes: int = SLOW_BYTES) -> None:
        self.free, self.slow_bytes = asyncio.Semaphore(places), slow_bytes

    def new(self, smallest: int = PART_SIZE, waiting: Waiting = nullcontext) -> Turn:
        """For one stream, whose parts may be as small as that; `waiting` is entered while it has no place."""
        return Turn(self, smallest, waiting)


class Turn:
    """One stream's place, when it has one."""

    def __init__(self, turns: Turns, smallest: int, waiting: Waiting) -> None:
        self._turns, self._loop = turns, asyncio.get_running_loop()
        self._until, self._worked = 0.0, 0.0
        self._timer: asyncio.TimerHandle | None = None  # runs while the stream has a place
        self._slow = self._ending = False
        self._smallest, self._waiting = smallest, waiting
        self._part = 0  # bytes of the one under way

    async def next(self) -> int:
        """Returns when the next part may be read into memory: how many bytes it may have.

        A turn ends with a small part: when gRPC has taken one, it has sent the one before, and still holds this one.
        """
        if self._timer and not self._ending:
            self._timer.cancel()
            self._ending = self._loop.time() >= self._until
            self._part = self._smallest if self._ending else min(2 * self._part, PART_SIZE)
        else:
            part = self._smallest if self._slow else max(self._smallest, PART_SIZE // 2)
            self.end()
            with self._waiting():
                await self._turns.free.acquire()
            self._until, self._part = self._loop.time() + TURN_SECONDS, part
        self._watch()
        return self._part

    def end(self) -> None:
        """Gives the place back, if there is one."""
        if self._timer:
            self._timer.cancel()
            self._timer = None
            self._turns.free.release()
        elif self._slow:
            self._turns.slow_bytes += self._part
        self._slow = self._ending = False

    def _watch(self) -> None:
        self._worked = time.process_time()
        self._timer = self._loop.call_later(SLOW_SECONDS, self._look)

    def _look(self) -> None:
        little = time.process_time() - self._worked < LITTLE * SLOW_SECONDS
        if little and self._part <= self._turns.slow_bytes:
            self.end()
            self._turns.slow_bytes -= self._part
            self._slow = True
        else:
            self._watch()
