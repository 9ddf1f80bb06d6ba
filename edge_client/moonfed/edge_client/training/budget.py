"""How much of a round a device does: all its steps, or as many as its budget of seconds allows, one at least."""

from __future__ import annotations

from collections.abc import Callable


class Budget:
    """A round's steps, counted, and its seconds, by a clock."""

    def __init__(
        self, steps: int, seconds: float | None, clock: Callable[[], float], started: float | None = None
    ) -> None:
        """`steps`: those to take. `seconds`: that the round may last; None: as long as it takes.

        `started`: when the seconds began to run, by the clock; now by default.
        """
        self.steps, self.taken = steps, 0
        self._seconds, self._clock = seconds, clock
        self._started = clock() if started is None else started

    def allows_step(self) -> bool:
        """Whether another step is to be taken."""
        return self.taken == 0 or (self.taken < self.steps and self.in_time())

    def in_time(self) -> bool:
        """Whether there are seconds left."""
        return self._spent() < 1

    def fraction(self) -> float:
        """Of the round's steps or of its seconds, whichever is nearer to its end, 0 to 1."""
        return min(1.0, max(self.taken / self.steps, self._spent()))

    def _spent(self) -> float:
        """Of the seconds; there is no need to look at the clock where none are counted."""
        return 0.0 if self._seconds is None else (self._clock() - self._started) / self._seconds
