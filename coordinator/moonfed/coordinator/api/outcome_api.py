"""The calls about outcomes of devices, independent of the transport."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from moonfed.control.devices import DeviceResult
from moonfed.control.runs import RoundOutcomes
from moonfed.coordinator.records import AttemptId
from moonfed.coordinator.storage.store import Store

MOST_RESULTS = 10_000  # of one device
ATTEMPTS_AT_ONCE = 10  # read from the database at once, each with all devices of its cohort


class OutcomeApi:
    """The history of a device, and the outcomes of a run's devices. Lives on one event loop."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def device_history(self, device: str, newest: int = 0) -> list[DeviceResult]:
        """Return a device's results in all runs, newest first; only the `newest` unless that is 0. Raises NotFound."""
        await asyncio.to_thread(self._store.devices.device, device)
        limit = min(newest or MOST_RESULTS, MOST_RESULTS)
        return await asyncio.to_thread(self._store.outcomes.of_device, device, limit)

    async def round_outcomes(self, run: str, newest: int = 0) -> AsyncGenerator[RoundOutcomes, None]:
        """Yield the outcomes of a run's ended attempts, oldest first; only the `newest` unless that is 0.

        Raises NotFound.
        """
        await asyncio.to_thread(self._store.run, run)
        last: AttemptId | None = None
        if newest:
            last = await asyncio.to_thread(self._store.past_round_before, run, newest)
        while page := await asyncio.to_thread(self._store.outcomes.of_run, run, last, ATTEMPTS_AT_ONCE):
            for found in page:
                yield found
            last = AttemptId(run=run, round=page[-1].round, attempt=page[-1].attempt)
