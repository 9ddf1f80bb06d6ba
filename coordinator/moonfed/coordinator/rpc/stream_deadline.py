"""Deadlines of what a caller streams to us: one that falls silent must not hold its place for ever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import nullcontext
from itertools import count
from typing import TypeVar

from moonfed.coordinator.rpc.flow_control import Turns, Waiting
from moonfed.errors import Unavailable

PART_SECONDS = 120.0  # for the next message, which is at most a part of 1 MiB: 9 KB/s
STREAM_SECONDS = 4 * 3600.0  # for all of them
T = TypeVar("T")


async def paced(messages: AsyncIterator[T], turns: Turns, waiting: Waiting = nullcontext) -> AsyncGenerator[T, None]:
    """The messages, as long as they come in time; Unavailable once they do not, since what was sent can be resumed.

    After the header they come in turn with those of other streams. To be closed as soon as no more are wanted.
    """
    clock, turn = asyncio.get_running_loop().time, turns.new(waiting=waiting)
    end = clock() + STREAM_SECONDS
    try:
        for number in count():
            if number:
                await turn.next()
            try:
                async with asyncio.timeout(min(PART_SECONDS, end - clock())):
                    message = await anext(messages)
            except StopAsyncIteration:
                return
            except TimeoutError:
                raise Unavailable("the upload took too long; send it again, it goes on where it broke off") from None
            yield message
    finally:
        turn.end()
