"""A bound on the agent's log: whoever controls the coordinator decides how often most of its lines occur."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable

from moonfed.observability.flood_limit import EVENTS, FloodLimit

WORK = 100  # lines of a kind per minute about work; more than rounds take place. Of warnings and errors: EVENTS
LENGTH = 1000  # characters of a line
_VALUE = re.compile(r"%[-+ #0-9.]*[a-zA-Z]")

_log = logging.getLogger(__name__)


class FloodFilter(logging.Filter):
    """Admits a few lines of each kind per minute, and logs the number of the others; cuts long lines."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._work, self._warnings = FloodLimit[None](clock, events=WORK), FloodLimit[None](clock, events=EVENTS)

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to log a record."""
        if record.name == __name__:
            return True
        self.summarise()
        limit = self._warnings if record.levelno >= logging.WARNING else self._work
        if not limit.admit(_VALUE.sub("…", str(record.msg)), None):
            return False
        message = record.getMessage()
        if len(message) > LENGTH:
            record.msg, record.args = f"{message[:LENGTH]}…", ()
        return True

    def summarise(self) -> None:
        """Log the number of omitted lines of each kind whose minute is over."""
        for limit in (self._warnings, self._work):
            for found in limit.pop_omitted():
                _log.warning("%s: %d more such lines in %.0f s", found.cause, found.events, found.seconds)
