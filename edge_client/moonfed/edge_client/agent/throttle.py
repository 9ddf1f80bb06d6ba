"""A rate limit for blobs, in bytes per second."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing

from moonfed.errors import Unavailable
from moonfed.transport.client import PART_SIZE
from moonfed.v1 import blob_pb2

PARTS_PER_SECOND = 4  # at a low rate, to keep it smooth
MIN_PART_SIZE = 1 << 12  # bytes; smaller ones would be mostly headers
TICK_SECONDS = 0.5  # between two checks that a transfer is still should_continue


class Throttle:
    """A token bucket that returns the delay after each part. `clock` is in seconds."""

    def __init__(self, bytes_per_second: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._clock = bytes_per_second, clock
        self._due = clock()  # when the rate allows the next byte

    @property
    def part_size(self) -> int:
        """Bytes to send at once."""
        return min(max(self._rate // PARTS_PER_SECOND, MIN_PART_SIZE), PART_SIZE)

    def consume(self, size: int) -> float:
        """Count bytes just transferred; return the seconds to wait before the next.

        The transfer's own time counts, so a connection slower than the rate is never delayed.
        """
        now = self._clock()
        self._due = max(self._due + size / self._rate, now)
        return self._due - now


def throttled(
    chunks: Generator[blob_pb2.Chunk, None, None],
    throttle: Throttle,
    should_continue: Callable[[], bool],
    sleep: Callable[[float], object] = time.sleep,
) -> Iterator[blob_pb2.Chunk]:
    """Yield the chunks with a delay after each; raise Unavailable soon after `should_continue` returns False."""
    with closing(chunks):
        for chunk in chunks:
            yield chunk
            left = throttle.consume(len(chunk.data))
            while left > 0:
                if not should_continue():
                    raise Unavailable("the transfer is no longer needed")
                pause = min(left, TICK_SECONDS)
                sleep(pause)
                left -= pause
