"""Whose parts are in memory: streams take turns, so that memory does not grow with the number of devices.

gRPC keeps a megabyte or two of each stream that is being sent or received, however little of it we hold ourselves. So
a few streams go on at a time, each for a moment, rather than all of them at once.
"""

from __future__ import annotations

import asyncio
import time

PLACES = 8  # in each direction; more would not be faster
TURN_SECONDS = 0.5  # then another stream is let in, if one waits
# For one part, while we have little else to do: such a stream is slow and goes on without a place, so that many slow
# ones need not wait for each other.
SLOW_SECONDS = 0.1
LITTLE = 0.3  # of that time


class Turns:
    """The places of the streams in one direction."""

    def __init__(self, places: int = PLACES) -> None:
        self.free = asyncio.Semaphore(places)

    def new(self) -> Turn:
        """For one stream."""
        return Turn(self.free)


class Turn:
    """One stream's place, when it has one."""

    def __init__(self, free: asyncio.Semaphore) -> None:
        self._free, self._loop = free, asyncio.get_running_loop()
        self._until, self._worked = 0.0, 0.0
        self._timer: asyncio.TimerHandle | None = None  # runs while the stream has a place

    async def next(self) -> None:
        """Returns when the next part may be read into memory."""
        if self._timer and self._loop.time() < self._until:
            self._timer.cancel()
        else:
            self.end()
            await self._free.acquire()
            self._until = self._loop.time() + TURN_SECONDS
        self._watch()

    def end(self) -> None:
        """Gives the place back, if there is one."""
        if self._timer:
            self._timer.cancel()
            self._timer = None
            self._free.release()

    def _watch(self) -> None:
        self._worked = time.process_time()
        self._timer = self._loop.call_later(SLOW_SECONDS, self._look)

    def _look(self) -> None:
        if time.process_time() - self._worked < LITTLE * SLOW_SECONDS:
            self.end()
        else:
            self._watch()
