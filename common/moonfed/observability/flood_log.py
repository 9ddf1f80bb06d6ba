"""Logging of events that anybody can cause: a few lines per cause, then a count."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

from moonfed.observability.flood_limit import EVENTS, FloodLimit

LINES = EVENTS  # per cause and period


class FloodLog:
    """A logger that a flood cannot fill. May be used by any thread."""

    def __init__(self, log: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._limit = FloodLimit[None](clock)

    def write(
        self,
        level: int,
        cause: str,
        line: str,
        *values: object,
        error: Exception | None = None,
        fields: Mapping[str, object] | None = None,
    ) -> None:
        """Log a line, unless its cause, such as an address, has reached the number of lines per period.

        `fields`: see moonfed.observability.logs.
        """
        self.summarise()
        if self._limit.admit(cause, None):
            self._log.log(level, line, *values, exc_info=error, extra=fields)

    def summarise(self) -> None:
        """Log the number of omitted events of each cause whose period is over."""
        for found in self._limit.pop_omitted():
            self._log.warning("%s: %d more such events in %.0f s", found.cause, found.events, found.seconds)
