"""Runs that another coordinator on the same database drives: shown here, but nothing of them is changed.

A run's driver holds its lease and prolongs it in time. Whoever finds a lease free takes the run over.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from dataclasses import replace

from coordinator.background import in_thread
from coordinator.records import RunView
from coordinator.storage.leases import LEASE_SECONDS
from coordinator.storage.store import Store
from coordinator.storage.views import run_view
from moonfed.errors import Unavailable

_log = logging.getLogger(__name__)
_WAITING = "another coordinator drives this run"


class ElsewhereRuns:
    """The running runs whose lease is another coordinator's."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._runs: set[str] = set()

    def __contains__(self, run: str) -> bool:
        return run in self._runs

    def add(self, run: str) -> None:
        """Another coordinator holds the run."""
        self._runs.add(run)
        _log.warning("run %r is driven by another coordinator; it is served here, and taken over if that one ends", run)

    def problem(self, run: str) -> Unavailable:
        """What to tell those who want something of the run."""
        return Unavailable(f"run {run!r} is driven by another coordinator at present")

    def view(self, run: str) -> RunView:
        """What an operator sees of the run. Blocking."""
        return replace(run_view(self._store, self._store.run(run), None), waiting=_WAITING)

    async def watch_leases(
        self,
        driven: Callable[[], Collection[str]],
        lose: Callable[[str], None],
        take_over: Callable[[str], Awaitable[None]],
    ) -> None:
        """Prolongs the leases of the runs that are driven here, and takes over those whose lease is free, for ever."""
        while True:
            await asyncio.sleep(LEASE_SECONDS / 3)
            try:
                await self._look(driven(), lose, take_over)
            except Exception:  # the database is away, perhaps: what is not prolonged in time cannot be committed
                _log.exception("the leases of runs cannot be prolonged")

    async def _look(
        self, driven: Collection[str], lose: Callable[[str], None], take_over: Callable[[str], Awaitable[None]]
    ) -> None:
        running = {record.run for record in await in_thread(self._store.runs) if record.status == "running"}
        self._runs &= running
        for run in sorted(running):
            held = await in_thread(self._store.leases.take, run, LEASE_SECONDS)
            if held and run not in driven:
                self._runs.discard(run)
                _log.warning("run %r is driven here from now on", run)
                await take_over(run)
            elif not held and run in driven:
                lose(run)
                self.add(run)
            elif not held and run not in self:
                self.add(run)
