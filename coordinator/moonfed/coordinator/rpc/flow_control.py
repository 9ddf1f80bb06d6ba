"""Flow control of blob streams: bounded memory whatever the number of devices, fair shares, and deadlines.

gRPC and the coordinator hold a few copies of each stream's current part. So only a few streams proceed at a time, each
for a short turn, and at most one or two of each caller: a device that opens many streams, and reads or sends nothing,
delays only its own streams.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Hashable
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
# The share of that time below which our processor time shows that we are idle. By the wall clock alone, and without
# reads from the page cache in the event loop, a round of ten devices with 44.8 MB took 1.2 times as long.
IDLE_SHARE = 0.3
SLOW_BYTES = 16 << 20  # that slow streams in one direction may have under way
SMALL_PART = PART_SIZE // 16
PART_SECONDS = 120.0  # for the next message, which is at most a part of 1 MiB: 9 KB/s
STREAM_SECONDS = 4 * 3600.0  # for all of them
Suspended = Callable[[], AbstractContextManager[None]]
T = TypeVar("T")


class FlowControl:
    """The slots of the streams in one direction. Few streams of a caller proceed at a time; callers take turns."""

    def __init__(self, slots: int = SLOTS, slow_bytes: int = SLOW_BYTES, of_one: int = 1) -> None:
        """`of_one`: the number of streams of one caller that may proceed at a time."""
        self.free, self.slow_bytes, self._of_one = slots, slow_bytes, of_one
        self._under_way: Counter[Hashable] = Counter()  # streams with a slot, or a slow part, by caller
        self._waiting: dict[Hashable, deque[asyncio.Future[None]]] = {}  # by caller; the first one is next

    def stream(
        self,
        caller: Hashable,
        *,
        smallest: int = PART_SIZE,
        suspended: Suspended = nullcontext,
        stalled: Callable[[], object] = lambda: None,
    ) -> StreamSlot:
        """Register a stream with parts of at least `smallest` bytes.

        `suspended` is entered while it waits. `stalled` is called when a part takes longer than PART_SECONDS; it must
        end the stream.
        """
        return StreamSlot(self, caller, smallest, suspended, stalled)

    async def acquire(self, caller: Hashable) -> None:
        """Wait for a slot, and for the caller's other streams."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(caller, deque()).append(turn)
        self._grant()
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it had just been granted
                self.release(caller, has_slot=True)
            raise

    def release(self, caller: Hashable, *, has_slot: bool) -> None:
        """End a stream's turn; a stream that became slow has already passed its slot on."""
        self._under_way[caller] -= 1
        if not self._under_way[caller]:
            del self._under_way[caller]
        if turns := self._waiting.pop(caller, None):
            self._waiting[caller] = turns  # behind the other callers
        self.free += has_slot
        self._grant()

    def pass_on(self) -> None:
        """Give a slow stream's slot to another caller; the slow stream's own caller waits until `release`."""
        self.free += 1
        self._grant()

    def _grant(self) -> None:
        while self.free:
            caller = next((caller for caller in self._waiting if self._under_way[caller] < self._of_one), None)
            if caller is None:
                return
            turn = self._waiting[caller].popleft()
            if not self._waiting[caller]:
                del self._waiting[caller]
            if not turn.cancelled():
                self._under_way[caller] += 1
                self.free -= 1
                turn.set_result(None)


class StreamSlot:
    """One stream's slot, while it has one."""

    def __init__(
        self,
        control: FlowControl,
        caller: Hashable,
        smallest: int,
        suspended: Suspended,
        stalled: Callable[[], object],
    ) -> None:
        self._control, self._caller, self._loop = control, caller, asyncio.get_running_loop()
        self._smallest, self._suspended, self._stalled = smallest, suspended, stalled
        self._turn_ends, self._processor_time = 0.0, 0.0
        self._timer: asyncio.TimerHandle | None = None  # runs during a turn
        self._slow = self._last_part = False
        self._part = 0  # bytes of the part under way

    async def next_part(self) -> int:
        """Wait until the next part may be read into memory; returns how many bytes it may have.

        A turn ends with a small part: when gRPC accepts a part, it has sent the one before, and still holds this one.
        """
        if self._timer and not (self._slow or self._last_part):
            self._timer.cancel()
            self._last_part = self._loop.time() >= self._turn_ends
            self._part = self._smallest if self._last_part else min(2 * self._part, PART_SIZE)
        else:
            part = self._smallest if self._slow else max(self._smallest, PART_SIZE // 2)
            self.release()
            with self._suspended():
                await self._control.acquire(self._caller)
            self._turn_ends, self._part = self._loop.time() + TURN_SECONDS, part
        self._processor_time = time.process_time()
        self._timer = self._loop.call_later(SLOW_SECONDS, self._check_speed, self._loop.time() + PART_SECONDS)
        return self._part

    def release(self) -> None:
        """End the turn, if there is one."""
        if self._timer:
            self._timer.cancel()
            self._timer = None
            self._control.slow_bytes += self._part if self._slow else 0
            self._control.release(self._caller, has_slot=not self._slow)
        self._slow = self._last_part = False

    def _check_speed(self, deadline: float) -> None:
        """Pass on the slot of a slow part, and report one that is past its deadline."""
        now = time.process_time()
        idle, self._processor_time = now - self._processor_time < IDLE_SHARE * SLOW_SECONDS, now
        if not self._slow and idle and self._part <= self._control.slow_bytes:
            self._control.slow_bytes -= self._part
            self._slow = True
            self._control.pass_on()
        if self._loop.time() >= deadline:
            self._stalled()
            deadline += PART_SECONDS
        wait = deadline - self._loop.time() if self._slow else SLOW_SECONDS
        self._timer = self._loop.call_later(wait, self._check_speed, deadline)


async def receive(
    messages: AsyncIterator[T], control: FlowControl, caller: Hashable, suspended: Suspended = nullcontext
) -> AsyncGenerator[T, None]:
    """Yield a stream's messages; all but the first, its header, are subject to flow control.

    Raises Unavailable once they do not arrive in time: the sender can resume. The caller closes the generator.
    """
    clock, slot = asyncio.get_running_loop().time, control.stream(caller, suspended=suspended)
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
