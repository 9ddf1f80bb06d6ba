"""Subscribers to a run's events, each with a bounded queue: a slow one delays no other, in bounded memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from moonfed.control.events import Progress, RunEvent
from moonfed.errors import MoonfedError, Unavailable

QUEUE_LENGTH = 1024
PROGRESS_LENGTH = QUEUE_LENGTH // 2  # progress is dropped first: the next report supersedes it


class Subscriber:
    """One subscriber; its queue ends with an error, or with None once the run has ended."""

    def __init__(self) -> None:
        self._events: asyncio.Queue[RunEvent | MoonfedError | None] = asyncio.Queue()
        self.closed = False

    def publish(self, event: RunEvent) -> None:
        """Queue an event, or cut the subscriber off if it has fallen too far behind."""
        queued = self._events.qsize()
        if self.closed or (isinstance(event, Progress) and queued >= PROGRESS_LENGTH):
            return
        if queued >= QUEUE_LENGTH:
            self.close(Unavailable("this watcher fell behind"))
            return
        self._events.put_nowait(event)

    def close(self, reason: MoonfedError | None = None) -> None:
        """End the subscription after the queued events."""
        if not self.closed:
            self.closed = True
            self._events.put_nowait(reason)

    async def events(self) -> AsyncIterator[RunEvent]:
        """Yield events until the run has ended; raises the reason of being cut off."""
        while (event := await self._events.get()) is not None:
            if isinstance(event, MoonfedError):
                raise event
            yield event


class Subscribers:
    """All subscribers to one run."""

    def __init__(self) -> None:
        self._subscribers: set[Subscriber] = set()

    def __bool__(self) -> bool:
        return bool(self._subscribers)

    def add(self) -> Subscriber:
        """Add a subscriber."""
        subscriber = Subscriber()
        self._subscribers.add(subscriber)
        return subscriber

    def remove(self, subscriber: Subscriber) -> None:
        """Remove a subscriber that has left."""
        self._subscribers.discard(subscriber)

    def publish(self, event: RunEvent) -> None:
        """Queue an event for every subscriber."""
        for subscriber in self._subscribers:
            subscriber.publish(event)

    def close(self, reason: MoonfedError | None = None) -> None:
        """End every subscription."""
        for subscriber in self._subscribers:
            subscriber.close(reason)
