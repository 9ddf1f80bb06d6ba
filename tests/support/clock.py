"""A clock that the test moves, in place of the module `time` or of one of its functions."""

from __future__ import annotations


class Clock:
    """Seconds since some moment."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
