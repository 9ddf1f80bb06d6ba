"""A limit on events that anybody can cause: a few of each cause in a period, then a count."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

EVENTS = 10  # per cause and period
PERIOD_SECONDS = 60.0
MAX_CAUSES = 1000  # causes counted separately in each period
OTHERS = "others"
T = TypeVar("T")


@dataclass(slots=True)
class _Cause(Generic[T]):
    """The events of one cause in this period."""

    began: float
    first: T
    events: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Omitted(Generic[T]):
    """The number of events of one cause that were not admitted in a period, and the period's first event."""

    cause: str
    first: T
    events: int
    seconds: float


class FloodLimit(Generic[T]):
    """Admits a few events of each cause per period. May be used by any thread."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, max_causes: int = MAX_CAUSES, events: int = EVENTS
    ) -> None:
        """`events`: admitted per cause and period."""
        self._clock = clock
        self._lock = threading.Lock()
        self._max_causes = max_causes
        self._events = events
        self._causes: dict[str, _Cause[T]] = {}

    def admit(self, cause: str, event: T) -> bool:
        """Return False if the cause, such as an address, has reached the number of events per period."""
        with self._lock:
            if cause not in self._causes and len(self._causes) >= self._max_causes:
                cause = OTHERS
            found = self._causes.setdefault(cause, _Cause(self._clock(), event))
            found.events += 1
            return found.events <= self._events

    def pop_omitted(self, *, ended_only: bool = True) -> list[Omitted[T]]:
        """Remove the causes whose period has ended, or all of them; return those with omitted events."""
        now, omitted = self._clock(), []
        with self._lock:
            for cause, found in list(self._causes.items()):
                seconds = now - found.began
                if ended_only and seconds < PERIOD_SECONDS:
                    break  # the others began later
                del self._causes[cause]
                if found.events > self._events:
                    events = found.events - self._events
                    omitted.append(Omitted(cause=cause, first=found.first, events=events, seconds=seconds))
        return omitted
