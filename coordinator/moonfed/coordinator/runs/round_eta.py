"""How long a run's rounds take, which is what the next one's beginning is guessed from."""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable

from moonfed.coordinator.rounds.state import OpenRound, State

ROUNDS_REMEMBERED = 9
SOON_SECONDS = 1.0  # where nothing is known to stand in the next round's way


class RoundEta:
    """The lengths of a run's last rounds since the coordinator started, by a monotonic clock."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lengths: deque[float] = deque(maxlen=ROUNDS_REMEMBERED)
        self._open: tuple[int, int] | None = None
        self._opened = self._rests_until = clock()

    def follow(self, current: OpenRound | None) -> None:
        """Where the run stands now."""
        place = (current.round, current.attempt) if current else None
        if place == self._open:
            return
        now = self._clock()
        if self._open:
            self._lengths.append(now - self._opened)
        self._open, self._opened = place, now

    def rests(self, seconds: float) -> None:
        """The next round will not open before."""
        self._rests_until = self._clock() + seconds

    def until_next_round(self, state: State) -> float:
        """Seconds until the next round may open, as a guess; 0 if nobody knows."""
        if state.status != "running" or state.stopping:
            return 0.0
        if state.open and not state.open.reducing:
            return self._left_of_open_round()
        return max(SOON_SECONDS, self._rests_until - self._clock() if state.resting else 0.0)

    def _left_of_open_round(self) -> float:
        if not self._lengths:
            return 0.0
        return max(SOON_SECONDS, statistics.median(self._lengths) - (self._clock() - self._opened))
