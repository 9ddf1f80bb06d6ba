"""Estimate of when a run's next round opens, from the durations of its last rounds."""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable, Sequence

from moonfed.coordinator.rounds.events import Command, Event, RetryDue, StartTimer
from moonfed.coordinator.rounds.state import OpenRound, State

ROUNDS_REMEMBERED = 9
SOON_SECONDS = 1.0  # if nothing is known to delay the next round


class RoundEta:
    """The durations of a run's last rounds since the coordinator started, by a monotonic clock."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._durations: deque[float] = deque(maxlen=ROUNDS_REMEMBERED)
        self._open: tuple[int, int] | None = None
        self._opened = self._retry_at = clock()

    def on_step(self, event: Event, state: State, commands: Sequence[Command]) -> None:
        """Update the estimate after a step of the state machine."""
        for command in commands:
            if isinstance(command, StartTimer) and isinstance(command.event, RetryDue):
                self._retry_at = self._clock() + command.seconds
        self.observe(state.open)

    def observe(self, current: OpenRound | None) -> None:
        """Update the estimate: this round is open now."""
        now = self._clock()
        attempt = (current.round, current.attempt) if current else None
        if attempt == self._open:
            return
        if self._open:
            self._durations.append(now - self._opened)
        self._open, self._opened = attempt, now

    def until_next_round(self, state: State) -> float:
        """Return the estimated seconds until the next round opens; 0 if unknown."""
        if state.status != "running" or state.stopping:
            return 0.0
        if state.open and not state.open.reducing:
            return self._left_of_open_round()
        return max(SOON_SECONDS, self._retry_at - self._clock() if state.backing_off else 0.0)

    def _left_of_open_round(self) -> float:
        if not self._durations:
            return 0.0
        return max(SOON_SECONDS, statistics.median(self._durations) - (self._clock() - self._opened))
