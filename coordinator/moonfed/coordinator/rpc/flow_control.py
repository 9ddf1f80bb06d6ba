"""Flow control of blob streams: bounded memory whatever the number of devices, fair shares, and deadlines.

gRPC and the coordinator hold a few copies of each stream's current part. So only a few streams proceed at a time, each
for a short turn, and at most one or two of each caller: a device that opens many streams, and reads or sends nothing,
delays only its own streams. Stalled streams are aborted within seconds if other callers wait. For ten minutes, all
callers that have stalled share half of the capacity.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from itertools import count
from typing import TypeVar

from moonfed.errors import Unavailable
from moonfed.transport.client import PART_SIZE

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
PATIENCE_SECONDS = 10.0  # for the next part of a stream whose slot another caller needs
RELIEF_SECONDS = 1.0  # between two searches for stalled streams to abort
# A caller that sends a message more slowly than this has stalled. At this rate, a small part takes eight seconds.
MIN_RATE, GRACE_SECONDS = SMALL_PART / 8, 2.0  # bytes per second, and an allowance in seconds
STALL_MEMORY_SECONDS = 600.0
Suspended = Callable[[], AbstractContextManager[None]]
Abort = Callable[[], object]
T = TypeVar("T")


class FlowControl:
    """The slots of the streams in one direction. Few streams of a caller proceed at a time; callers take turns."""

    def __init__(
        self, slots: int = SLOTS, slow_bytes: int = SLOW_BYTES, of_one: int = 1, stalled_part: int = PART_SIZE
    ) -> None:
        """`of_one`: streams of one caller that may proceed at a time; `stalled_part`: bytes of a stalled one's part."""
        self.free = slots
        self.slow_bytes = slow_bytes
        self._of_one = of_one
        self._places = slots + slow_bytes // stalled_part  # capacity: stalled streams that can be under way
        self._under_way: Counter[Hashable] = Counter()  # streams with a slot, or a slow part, by caller
        self._waiting: dict[Hashable, deque[asyncio.Future[None]]] = {}  # by caller; the first one is next
        self._stalled: dict[Hashable, float] = {}  # callers that have stalled, and until when this is remembered
        # Parts under way that can be aborted: the caller, when the part began, and how to abort it.
        self._parts: dict[object, tuple[Hashable, float, Abort]] = {}
        self._stuck: set[StreamSlot] = set()  # slow streams that keep their slots
        self._relief: asyncio.TimerHandle | None = None

    def stream(
        self,
        caller: Hashable,
        *,
        smallest: int = PART_SIZE,
        suspended: Suspended = nullcontext,
        stalled: Abort | None = None,
    ) -> StreamSlot:
        """Register a stream with parts of at least `smallest` bytes.

        `suspended` is entered while it waits. `stalled` is called when a part takes longer than PART_SECONDS, or
        PATIENCE_SECONDS if another caller needs its slot; it must abort the stream.
        """
        return StreamSlot(self, caller, smallest, suspended, stalled)

    def part_size(self, caller: Hashable) -> int:
        """Return the most bytes that a part of this caller should have: few, if it has stalled."""
        return SMALL_PART if self.has_stalled(caller) else PART_SIZE

    def note_stall(self, caller: Hashable) -> None:
        """Remember that a caller has stalled."""
        now = asyncio.get_running_loop().time()
        self._stalled = {other: until for other, until in self._stalled.items() if until > now}
        self._stalled[caller] = now + STALL_MEMORY_SECONDS

    @contextmanager
    def abortable(self, caller: Hashable, limit: asyncio.Timeout) -> Iterator[None]:
        """Let `limit` expire if the part that is received in this context takes too long while others wait."""
        self._parts[limit] = caller, asyncio.get_running_loop().time(), partial(_expire, limit)
        try:
            yield
        finally:
            self._parts.pop(limit, None)

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

    def set_slow(self, stream: StreamSlot, size: int) -> bool:
        """Pass a slow stream's slot on; return False if too many bytes of slow streams are under way for that."""
        if size > self.slow_bytes:
            self._stuck.add(stream)
            return False
        self._stuck.discard(stream)
        self.slow_bytes -= size
        self.pass_on()
        return True

    def pass_on(self) -> None:
        """Give a slow stream's slot to another caller; the slow stream's own caller waits until `release`."""
        self.free += 1
        self._grant()

    def begin_part(self, stream: StreamSlot, caller: Hashable, abort: Abort) -> None:
        """Note that a stream's part is under way, and how to abort it if the part takes long and others wait."""
        self._parts[stream] = caller, asyncio.get_running_loop().time(), abort

    def end_part(self, stream: StreamSlot) -> None:
        """Note that a stream's part is complete."""
        self._stuck.discard(stream)
        self._parts.pop(stream, None)

    def _grant(self) -> None:
        while self.free and (caller := next(self._grantable(), None)) is not None:
            turn = self._waiting[caller].popleft()
            if not self._waiting[caller]:
                del self._waiting[caller]
            if not turn.cancelled():
                self._under_way[caller] += 1
                self.free -= 1
                turn.set_result(None)
        if self._waiting and self._relief is None:
            self._relief = asyncio.get_running_loop().call_later(RELIEF_SECONDS, self._relieve)

    def _grantable(self) -> Iterator[Hashable]:
        """Return the waiting callers that may have a slot, in their order."""
        for caller in self._waiting:
            if self._under_way[caller] < self._of_one and not (self.has_stalled(caller) and self._is_half_stalled()):
                yield caller

    def has_stalled(self, caller: Hashable) -> bool:
        """Return whether a caller has stalled within STALL_MEMORY_SECONDS."""
        return self._stalled.get(caller, 0.0) > asyncio.get_running_loop().time()

    def _is_half_stalled(self) -> bool:
        stalled = sum(count for caller, count in self._under_way.items() if self.has_stalled(caller))
        return stalled >= self._places // 2

    def _relieve(self) -> None:
        """Abort the oldest stalled streams, as many as there are callers that wait for their slots."""
        now = asyncio.get_running_loop().time()
        late = [(part, caller) for part, (caller, began, _) in self._parts.items() if now - began >= PATIENCE_SECONDS]
        grantable = list(self._grantable())
        others = [] if grantable else [caller for caller in self._waiting if self._under_way[caller] < self._of_one]
        ended = late[: min(len(self._stuck), len(grantable))]
        ended += [each for each in late if self.has_stalled(each[1])][: len(others)]
        for _, caller in late if ended else ():  # those that continue must not get more slots
            self.note_stall(caller)
        for part, _ in ended:
            if part in self._parts:
                self._parts.pop(part)[2]()
        self._relief = None
        self._grant()


class StreamSlot:
    """One stream's slot, while it has one."""

    def __init__(
        self,
        control: FlowControl,
        caller: Hashable,
        smallest: int,
        suspended: Suspended,
        stalled: Abort | None,
    ) -> None:
        self._control = control
        self._caller = caller
        self._loop = asyncio.get_running_loop()
        self._smallest = smallest
        self._suspended = suspended
        self._stalled = stalled
        self._turn_ends, self._processor_time = 0.0, 0.0
        self._timer: asyncio.TimerHandle | None = None  # runs during a turn
        self._slow = self._last_part = False
        self._part = 0  # bytes of the part under way

    async def next_part(self) -> int:
        """Wait until the next part may be read into memory; returns how many bytes it may have.

        A turn ends with a small part: when gRPC accepts a part, it has sent the one before, and still holds this one.
        """
        self._control.end_part(self)
        if self._timer and not (self._slow or self._last_part):
            self._timer.cancel()
            self._last_part = self._loop.time() >= self._turn_ends
            small = self._last_part or self._control.has_stalled(self._caller)
            self._part = self._smallest if small else min(2 * self._part, PART_SIZE)
        else:
            small = self._slow or not self._part or self._control.has_stalled(self._caller)
            part = self._smallest if small else max(self._smallest, PART_SIZE // 2)
            self.release()
            with self._suspended():
                await self._control.acquire(self._caller)
            self._turn_ends, self._part = self._loop.time() + TURN_SECONDS, part
        self._processor_time = time.process_time()
        self._timer = self._loop.call_later(SLOW_SECONDS, self._check_speed, self._loop.time() + PART_SECONDS)
        if self._stalled:
            self._control.begin_part(self, self._caller, self._stalled)
        return self._part

    def release(self) -> None:
        """End the turn, if there is one."""
        self._control.end_part(self)
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
        left = deadline - self._loop.time()
        if not self._slow and (idle or left <= PART_SECONDS - PATIENCE_SECONDS):
            self._slow = self._control.set_slow(self, self._part)
        if left <= 0:
            self._control.note_stall(self._caller)
            if self._stalled:
                self._stalled()
            deadline += PART_SECONDS
        wait = deadline - self._loop.time() if self._slow else SLOW_SECONDS
        self._timer = self._loop.call_later(wait, self._check_speed, deadline)


def _expire(limit: asyncio.Timeout) -> None:
    if not limit.expired():
        limit.reschedule(asyncio.get_running_loop().time())


async def receive(
    messages: AsyncIterator[T],
    control: FlowControl,
    caller: Hashable,
    suspended: Suspended = nullcontext,
    size_of: Callable[[T], int] = lambda _: PART_SIZE,
) -> AsyncGenerator[T, None]:
    """Yield a stream's messages; all but the first, its header, are subject to flow control.

    `size_of` returns the bytes of a message. Raises Unavailable once messages do not arrive in time: the sender can
    resume. The caller closes the generator.
    """
    clock, slot = asyncio.get_running_loop().time, control.stream(caller, suspended=suspended)
    end = clock() + STREAM_SECONDS
    try:
        for number in count():
            if number:
                await slot.next_part()
            began = clock()
            try:
                async with asyncio.timeout(min(PART_SECONDS, end - began)) as limit:
                    with control.abortable(caller, limit) if number else nullcontext():
                        message = await anext(messages)
            except StopAsyncIteration:
                return
            except TimeoutError:
                raise Unavailable("the upload took too long; it resumes when it is sent again") from None
            over = clock() - began - GRACE_SECONDS
            if number and over > 0 and over > size_of(message) / MIN_RATE:  # protobuf serializes to find a size
                control.note_stall(caller)
            yield message
    finally:
        slot.release()
