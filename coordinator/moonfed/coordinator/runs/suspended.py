"""Runs suspended because of a damaged file: listed with the reason, and stoppable."""

from __future__ import annotations

import logging
from dataclasses import replace

from moonfed.control.runs import Run
from moonfed.coordinator.records import RunRecord, attempt_id
from moonfed.coordinator.rounds.events import STOPPED
from moonfed.coordinator.runs.view import run_view
from moonfed.coordinator.storage.recovery import recovered_state
from moonfed.coordinator.storage.spool import Spool
from moonfed.coordinator.storage.store import Store
from moonfed.errors import WrongState

_log = logging.getLogger(__name__)


class SuspendedRuns:
    """The suspended runs with their reasons. Their state is kept until the file has been restored."""

    def __init__(self, store: Store, spool: Spool) -> None:
        self._store, self._spool = store, spool
        self._reasons: dict[str, str] = {}

    @property
    def names(self) -> set[str]:
        """The names of the suspended runs."""
        return set(self._reasons)

    def __contains__(self, run: str) -> bool:
        return run in self._reasons

    def add(self, record: RunRecord, problem: Exception) -> None:
        """Suspend a run until the coordinator is restarted with the problem fixed."""
        remedy = "fix this (restore the file from a backup if it is damaged or missing) and restart the coordinator"
        reason = f"suspended: {problem}; {remedy}"
        self._reasons[record.run] = reason
        _log.critical("run %r is %s", record.run, reason, extra={"run": record.run})

    def discard(self, run: str) -> None:
        """Remove a run that another coordinator now drives."""
        self._reasons.pop(run, None)

    def error(self, run: str) -> WrongState:
        """Return the error for calls about the run."""
        return WrongState(f"run {run!r} is {self._reasons[run]}", field="run", value=run)

    def view(self, run: str) -> Run:
        """Return the run as operators see it. Blocking."""
        return replace(run_view(self._store, self._store.run(run), None), waiting=self._reasons[run])

    def stop(self, run: str) -> None:
        """End a run for good and abandon its open round. Blocking."""
        state = recovered_state(self._store, run)
        if state.open:
            self._store.abandon_round(attempt_id(run, state.open), STOPPED)
        self._spool.delete_run(run)
        self._store.end_run(run, "stopped")
        self._reasons.pop(run, None)
