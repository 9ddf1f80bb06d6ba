"""One run's timers, on the event loop's monotonic clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from moonfed.coordinator.rounds.events import StartTimer, TimedEvent


class Timers:
    """Timers that deliver events. The first timer of a new attempt cancels those of earlier attempts.

    A new timer for the same event replaces the former one.
    """

    def __init__(self, deliver: Callable[[TimedEvent], object]) -> None:
        self._deliver = deliver
        self._running: dict[TimedEvent, asyncio.TimerHandle] = {}
        self._cancelled = False

    def start(self, command: StartTimer) -> None:
        """Deliver the command's event after its seconds."""
        if self._cancelled:
            return
        replaced = [
            event for event in self._running if event == command.event or _attempt(event) != _attempt(command.event)
        ]
        self._stop(replaced)
        loop = asyncio.get_running_loop()
        self._running[command.event] = loop.call_later(command.seconds, self._fire, command.event)

    def cancel(self) -> None:
        """Cancel all timers, for good."""
        self._cancelled = True
        self._stop(list(self._running))

    def _fire(self, event: TimedEvent) -> None:
        del self._running[event]
        self._deliver(event)

    def _stop(self, events: Collection[TimedEvent]) -> None:
        for event in events:
            self._running.pop(event).cancel()


def _attempt(event: TimedEvent) -> tuple[int, int]:
    return event.round, event.attempt
