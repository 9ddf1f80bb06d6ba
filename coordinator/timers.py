"""One run's timers, on the event loop's monotonic clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from coordinator.rounds.events import Event, StartTimer

Place = tuple[int, int]  # round and attempt


class Timers:
    """Brings events back in time. A timer of a new attempt ends those of the earlier ones."""

    def __init__(self, deliver: Callable[[Event], object]) -> None:
        self._deliver = deliver
        self._running: list[tuple[Place, asyncio.TimerHandle]] = []

    def start(self, command: StartTimer) -> None:
        """Delivers the command's event after its seconds."""
        place = (command.event.round, command.event.attempt)
        for other, timer in self._running:
            if other != place:
                timer.cancel()
        self._running = [entry for entry in self._running if entry[0] == place]
        timer = asyncio.get_running_loop().call_later(command.seconds, self._deliver, command.event)
        self._running.append((place, timer))

    def cancel(self) -> None:
        """No timer delivers any more."""
        for _, timer in self._running:
            timer.cancel()
