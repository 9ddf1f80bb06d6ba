"""Late updates: devices that offer an update after its round has closed are distinguished from those that never do."""

from __future__ import annotations

import asyncio
import logging

from moonfed.coordinator.records import AttemptId
from moonfed.coordinator.storage.device_outcomes import DeviceOutcomes
from moonfed.coordinator.storage.transient_errors import as_transient
from moonfed.coordinator.support.tasks import BackgroundTasks

_log = logging.getLogger(__name__)
RECORD_SECONDS = 0.5  # between two transactions, each of which records all that have come since


class LateUpdates:
    """The late updates that are yet to be recorded: one for each device. Lives on one event loop."""

    def __init__(self, outcomes: DeviceOutcomes, background: BackgroundTasks) -> None:
        self._outcomes, self._background = outcomes, background
        self._offered: dict[str, AttemptId] = {}  # by device
        self._recording = False

    def add(self, attempt: AttemptId, device: str) -> None:
        """Record soon that a device offered its update of an attempt too late; harmless if that is untrue."""
        self._offered[device] = attempt
        if not self._recording:
            self._recording = True
            self._background.spawn(self._record())

    async def _record(self) -> None:
        try:
            while self._offered:
                await asyncio.sleep(RECORD_SECONDS)
                offered, self._offered = self._offered, {}
                still_open = await asyncio.to_thread(self._outcomes.record_late, offered)
                self._offered = {**still_open, **self._offered}
        except Exception as error:  # operators see these devices as missing
            if not as_transient(error):
                raise
            _log.debug("late updates are not recorded: %s", error)
        finally:
            self._recording = False
