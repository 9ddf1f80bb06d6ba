"""The budget of a round: all its steps, or those that fit in its seconds, at least one."""

from __future__ import annotations

from collections.abc import Callable


class Budget:
    """Steps and seconds spent in a round."""

    def __init__(
        self, steps: int, seconds: float | None, clock: Callable[[], float], started: float | None = None
    ) -> None:
        """Limit a round to `steps`, and to `seconds` unless that is None.

        `started`: when the seconds began to run, by the clock; now by default.
        """
        self.steps, self.taken = steps, 0
        self._seconds, self._clock = seconds, clock
        self._started = clock() if started is None else started

    def allows_step(self) -> bool:
        """Return whether to take another step."""
        return self.taken == 0 or (self.taken < self.steps and self.in_time())

    def in_time(self) -> bool:
        """Return whether there are seconds left."""
        return self._spent() < 1

    def fraction(self) -> float:
        """Return the spent fraction of the steps or of the seconds, whichever is larger, 0 to 1."""
        return min(1.0, max(self.taken / self.steps, self._spent()))

    def _spent(self) -> float:
        """Return the spent fraction of the seconds, without reading the clock if there is no limit."""
        return 0.0 if self._seconds is None else (self._clock() - self._started) / self._seconds
