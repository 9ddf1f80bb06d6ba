"""Deadlines of what a caller streams to us: one that falls silent must not hold its place for ever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TypeVar

from moonfed.errors import Unavailable

PART_SECONDS = 120.0  # for the next message, which is at most a part of 1 MiB: 9 KB/s
STREAM_SECONDS = 4 * 3600.0  # for all of them
T = TypeVar("T")


async def paced(messages: AsyncIterator[T]) -> AsyncIterator[T]:
    """The messages, as long as they come in time; Unavailable once they do not, since what was sent can be resumed."""
    clock = asyncio.get_running_loop().time
    end = clock() + STREAM_SECONDS
    while True:
        left = min(PART_SECONDS, end - clock())
        try:
            message = await asyncio.wait_for(anext(messages), left)
        except StopAsyncIteration:
            return
        except asyncio.TimeoutError:
            raise Unavailable("the upload took too long; send it again, it goes on where it broke off") from None
        yield message
