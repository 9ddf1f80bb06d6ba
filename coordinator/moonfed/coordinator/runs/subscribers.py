"""Those who watch a run, each with a bounded queue, so that a slow one cannot hold up the rest or eat memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from moonfed.coordinator.records import RunEvent
from moonfed.errors import MoonfedError, Unavailable

QUEUE_LENGTH = 1024
PROGRESS_LENGTH = QUEUE_LENGTH // 2  # progress is dropped first: the next report makes up for it


class Subscriber:
    """One who watches; its queue ends with an error, or None once the run has ended."""

    def __init__(self) -> None:
        self._events: asyncio.Queue[RunEvent | MoonfedError | None] = asyncio.Queue()
        self.closed = False

    def tell(self, event: RunEvent) -> None:
        """Queues an event, or gives the watcher up if it has fallen too far behind."""
        waiting = self._events.qsize()
        if self.closed or (event.kind == "progress" and waiting >= PROGRESS_LENGTH):
            return
        if waiting >= QUEUE_LENGTH:
            self.close(Unavailable("this watcher fell behind; watch again"))
            return
        self._events.put_nowait(event)

    def close(self, reason: MoonfedError | None = None) -> None:
        """After what is queued comes the end."""
        if not self.closed:
            self.closed = True
            self._events.put_nowait(reason)

    async def events(self) -> AsyncIterator[RunEvent]:
        """What the watcher is told, until the run has ended; raises the reason if it is cut off."""
        while (event := await self._events.get()) is not None:
            if isinstance(event, MoonfedError):
                raise event
            yield event


class Subscribers:
    """All who watch one run."""

    def __init__(self) -> None:
        self._watchers: set[Subscriber] = set()

    def __bool__(self) -> bool:
        return bool(self._watchers)

    def add(self) -> Subscriber:
        """A new watcher."""
        watcher = Subscriber()
        self._watchers.add(watcher)
        return watcher

    def remove(self, watcher: Subscriber) -> None:
        """The watcher has gone."""
        self._watchers.discard(watcher)

    def tell(self, event: RunEvent) -> None:
        """Tells everybody."""
        for watcher in self._watchers:
            watcher.tell(event)

    def close(self, reason: MoonfedError | None = None) -> None:
        """Nothing more will happen, or can be told."""
        for watcher in self._watchers:
            watcher.close(reason)
