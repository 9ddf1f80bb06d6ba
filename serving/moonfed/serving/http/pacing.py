"""The pace at which large bodies are read, so that a few of them leave the event loop time for small requests."""

from __future__ import annotations

from asyncio import get_running_loop, sleep

UNPACED_BYTES = 1 << 20  # of each body
PACED_RATE = 128 << 20  # bytes per second, of all bodies together


class BodyPacer:
    """Spaces out the parts of large bodies. Only the event loop's thread uses it."""

    def __init__(self) -> None:
        self._free_at = 0.0

    async def wait(self, part: int, body: int) -> None:
        """Wait before the next part of a body, after one of `part` bytes; `body`: the bytes so far."""
        if body > UNPACED_BYTES:
            await sleep(self.delay(part, get_running_loop().time()))

    def delay(self, part: int, now: float) -> float:
        """Return the seconds until the next part may be read; reserve the time of this one."""
        self._free_at = max(self._free_at, now) + part / PACED_RATE
        return self._free_at - now
