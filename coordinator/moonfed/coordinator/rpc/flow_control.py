"""Flow control of blob streams: bounded memory whatever the number of devices, and deadlines for silent senders.

gRPC and the coordinator hold a few copies of each stream's current part. So only a few streams proceed at a time, each
for a short turn.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractContextManager, nullcontext
from itertools import count
from typing import TypeVar

from moonfed.errors import Unavailable
from moonfed.transport import PART_SIZE

SLOTS = 8  # streams at full speed in each direction; more are not faster
TURN_SECONDS = 0.5  # then a waiting stream gets the slot
# A part that takes this long while we are mostly idle shows that its device is slow. The stream then gives its slot to
# another one and continues without a slot, in small parts if we send them.
SLOW_SECONDS = 0.1
IDLE_SHARE = 0.3  # of that time, below which our processor time shows that we are idle
SLOW_BYTES = 16 << 20  # that slow streams in one direction may have under way
SMALL_PART = PART_SIZE // 16
PART_SECONDS = 120.0  # for the next message, which is at most a part of 1 MiB: 9 KB/s
STREAM_SECONDS = 4 * 3600.0  # for all of them
Suspended = Callable[[], AbstractContextManager[None]]
T = TypeVar("T")


class FlowControl:
    """The slots of the streams in one direction."""

    def __init__(self, slots: int = SLOTS, slow_bytes: int = SLOW_BYTES) -> None:
        self.free, self.slow_bytes = asyncio.Semaphore(slots), slow_bytes

    def stream(self, smallest: int = PART_SIZE, suspended: Suspended = nullcontext) -> StreamSlot:
        """Register a stream with parts of at least `smallest` bytes; `suspended` is entered while it waits."""
        return StreamSlot(self, smallest, suspended)


class StreamSlot:
    """One stream's slot, while it has one."""

    def __init__(self, control: FlowControl, smallest: int, suspended: Suspended) -> None:
        self._control, self._loop = control, asyncio.get_running_loop()
        self._smallest, self._suspended = smallest, suspended
        self._turn_ends, self._processor_time = 0.0, 0.0
        self._timer: asyncio.TimerHandle | None = None  # runs while the stream has a slot
        self._slow = self._last_part = False
        self._part = 0  # bytes of the part under way

    async def next_part(self) -> int:
        """Wait until the next part may be read into memory; returns how many bytes it may have.

        A turn ends with a small part: when gRPC accepts a part, it has sent the one before, and still holds this one.
        """
        if self._timer and not self._last_part:
            self._timer.cancel()
            self._last_part = self._loop.time() >= self._turn_ends
            self._part = self._smallest if self._last_part else min(2 * self._part, PART_SIZE)
        else:
            part = self._smallest if self._slow else max(self._smallest, PART_SIZE // 2)
            self.release()
            with self._suspended():
                await self._control.free.acquire()
            self._turn_ends, self._part = self._loop.time() + TURN_SECONDS, part
        self._start_timer()
        return self._part

    def release(self) -> None:
        """Release the slot, if the stream has one."""
        if self._timer:
            self._timer.cancel()
            self._timer = None
            self._control.free.release()
        elif self._slow:
            self._control.slow_bytes += self._part
        self._slow = self._last_part = False

    def _start_timer(self) -> None:
        self._processor_time = time.process_time()
        self._timer = self._loop.call_later(SLOW_SECONDS, self._check_speed)

    def _check_speed(self) -> None:
        idle = time.process_time() - self._processor_time < IDLE_SHARE * SLOW_SECONDS
        if idle and self._part <= self._control.slow_bytes:
            self.release()
            self._control.slow_bytes -= self._part
            self._slow = True
        else:
            self._start_timer()


async def receive(
    messages: AsyncIterator[T], control: FlowControl, suspended: Suspended = nullcontext
) -> AsyncGenerator[T, None]:
    """Yield a stream's messages; all but the first, its header, are subject to flow control.

    Raises Unavailable once they do not arrive in time: the sender can resume. The caller closes the generator.
    """
    clock, slot = asyncio.get_running_loop().time, control.stream(suspended=suspended)
    end = clock() + STREAM_SECONDS
    try:
        for number in count():
            if number:
                await slot.next_part()
            try:
                async with asyncio.timeout(min(PART_SECONDS, end - clock())):
                    message = await anext(messages)
            except StopAsyncIteration:
                return
            except TimeoutError:
                raise Unavailable("the upload took too long; it resumes when it is sent again") from None
            yield message
    finally:
        slot.release()
