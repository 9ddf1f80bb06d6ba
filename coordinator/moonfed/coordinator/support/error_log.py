"""Logging of errors: one line for transient ones, a traceback for those that need investigation."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from moonfed.coordinator.storage.transient_errors import as_transient
from moonfed.errors import MoonfedError
from moonfed.observability.flood_log import FloodLog

SILENT_SECONDS = 10.0  # per line, which covers all waiting calls: a fleet makes a hundred per second
_log = logging.getLogger(__name__)


class ErrorLog:
    """Logs failed calls; one line covers all calls of a fleet that wait for the same resource."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._last_warning = clock, -SILENT_SECONDS
        self._internal = FloodLog(_log, clock)

    def failed(self, caller: str, error: Exception) -> None:
        """Log a failed call, unless its error is the caller's own, such as a wrong tensor."""
        if transient := _transient_cause(error):
            if self._clock() - self._last_warning >= SILENT_SECONDS:
                self._last_warning = self._clock()
                _log.warning("rejecting calls for now, for example from %s: %s", caller, transient)
        elif not isinstance(error, MoonfedError):
            self._internal.write(logging.ERROR, type(error).__name__, "a call of %s failed", caller, error=error)


def log_error(log: logging.Logger, what: str, error: Exception, **fields: object) -> None:
    """Log an internal failure: one line if transient, else a traceback; `fields`: see moonfed.observability.logs."""
    if transient := as_transient(error):
        log.error("%s: %s", what, transient, extra=fields)
    else:
        log.error(what, exc_info=error, extra=fields)


def _transient_cause(error: Exception) -> MoonfedError | None:
    """Return a transient error of a disk or server; None if the error concerns the caller, such as its quota."""
    transient = as_transient(error)
    return transient if transient is not error or error.__cause__ else None
