"""Logging of errors: one line for transient ones, a traceback for those that need investigation."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from moonfed.coordinator.storage.transient_errors import as_transient
from moonfed.errors import MoonfedError

SILENT_SECONDS = 10.0  # in which one line stands for all calls that wait: a fleet makes a hundred a second
_log = logging.getLogger(__name__)


class ErrorLog:
    """Logs failed calls; one line stands for all calls of a fleet that wait for the same resource."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._told = clock, -SILENT_SECONDS

    def failed(self, caller: str, error: Exception) -> None:
        """Log a failed call, unless its error is the caller's own, such as a wrong tensor."""
        if told := _beneath(error):
            if self._clock() - self._told >= SILENT_SECONDS:
                self._told = self._clock()
                _log.warning("rejecting calls for now, for example from %s: %s", caller, told)
        elif not isinstance(error, MoonfedError):
            _log.error("a call of %s failed", caller, exc_info=error)


def log_error(log: logging.Logger, what: str, error: Exception) -> None:
    """Log an internal failure: one line if it is transient, else a traceback."""
    if told := as_transient(error):
        log.error("%s: %s", what, told)
    else:
        log.error(what, exc_info=error)


def _beneath(error: Exception) -> MoonfedError | None:
    """Return a transient error of a disk or server; None if the error concerns the caller, such as its quota."""
    told = as_transient(error)
    return told if told is not error or error.__cause__ else None
