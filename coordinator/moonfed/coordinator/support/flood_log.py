"""Logging of events that anybody can cause: a few lines per cause, then a count."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

LINES = 10  # lines per cause and period
PERIOD_SECONDS = 60.0
MAX_CAUSES = 1000  # causes logged separately in each period
OTHERS = "others"


@dataclass(slots=True)
class _Cause:
    """The events of one cause in this period."""

    began: float
    events: int = 0


class FloodLog:
    """A logger that a flood cannot fill. May be used by any thread."""

    def __init__(self, log: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._log, self._clock, self._lock = log, clock, threading.Lock()
        self._causes: dict[str, _Cause] = {}

    def write(self, level: int, cause: str, line: str, *values: object, error: Exception | None = None) -> None:
        """Log a line, unless its cause, such as an address, has reached the number of lines per period."""
        self.summarise()
        with self._lock:
            if cause not in self._causes and len(self._causes) >= MAX_CAUSES:
                cause = OTHERS
            found = self._causes.setdefault(cause, _Cause(self._clock()))
            found.events += 1
            if found.events <= LINES:
                self._log.log(level, line, *values, exc_info=error)

    def summarise(self) -> None:
        """Log the number of omitted events of each cause whose period is over."""
        now = self._clock()
        with self._lock:
            for cause, found in list(self._causes.items()):
                seconds = now - found.began
                if seconds < PERIOD_SECONDS:
                    return  # the others began later
                del self._causes[cause]
                if found.events > LINES:
                    self._log.warning("%s: %d more such events in %.0f s", cause, found.events - LINES, seconds)
