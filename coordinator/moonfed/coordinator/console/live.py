"""A run's events as a stream of server-sent events, gathered so that a page has at most four messages a second.

snapshot     the run, first and after each interruption
events       what happened since the last message, with the devices' latest progress
interrupted  the reason why the coordinator cannot be reached; the stream goes on by itself
failed       the reason why there is nothing more to follow
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from moonfed.client.aio.connection import AsyncConnection
from moonfed.control.codec import read_event
from moonfed.control.document import document
from moonfed.control.events import Ended, Progress, RoundOpened, RunEvent, Snapshot
from moonfed.errors import MoonfedError, Unavailable
from moonfed.transport.client import Backoff
from moonfed.v1 import control_pb2

PAUSE = 0.25  # seconds between two messages
ALIVE = 15.0  # seconds without a message after which a comment keeps the connection open
MOST_EVENTS = 2000  # that wait for a slow browser, which then gets a snapshot instead


class _Batch:
    """The events not yet sent to a browser."""

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        self.ended = self.overflown = False
        self._messages: list[tuple[str, Any]] = []
        self._events: list[dict[str, Any]] = []
        self._progress: dict[str, float] = {}

    def add(self, event: RunEvent) -> None:
        """Add an event."""
        match event:
            case Progress():
                self._progress[event.device] = round(event.fraction, 3)
            case Snapshot():
                self.restart("snapshot", document(event.run))
            case _:
                if isinstance(event, RoundOpened):
                    self._progress.clear()
                self._events.append(document(event))
                self.overflown = len(self._events) > MOST_EVENTS
                if isinstance(event, Ended):
                    self._flush()
                    self._messages.append(("snapshot", document(event.run)))
        self.changed.set()

    def restart(self, name: str, document: object) -> None:
        """Replace everything that waits with one message."""
        self._events, self._progress = [], {}
        self._messages = [(name, document)]
        self.changed.set()

    def drain(self) -> list[bytes]:
        """Return the waiting messages, and clear them."""
        self._flush()
        found, self._messages = self._messages, []
        self.changed.clear()
        return [
            f"event: {name}\ndata: {json.dumps(document, separators=(',', ':'))}\n\n".encode()
            for name, document in found
        ]

    def _flush(self) -> None:
        if self._events or self._progress:
            self._messages.append(("events", {"events": self._events, "progress": self._progress}))
            self._events, self._progress = [], {}


async def live_run(connection: AsyncConnection, run: str) -> AsyncIterator[bytes]:
    """Yield the messages about a run until it ends."""
    batch = _Batch()
    reader = asyncio.create_task(_follow(connection, run, batch))
    try:
        while True:
            try:
                await asyncio.wait_for(batch.changed.wait(), ALIVE)
            except asyncio.TimeoutError:
                yield b": alive\n\n"
                continue
            ended = batch.ended
            for message in batch.drain():
                yield message
            if ended:
                return
            await asyncio.sleep(PAUSE)
    finally:
        reader.cancel()
        await asyncio.gather(reader, return_exceptions=True)


async def _follow(connection: AsyncConnection, run: str, batch: _Batch) -> None:
    backoff = Backoff(limit=5.0)
    request, kind = control_pb2.WatchRunRequest(run=run, progress=True), control_pb2.RunEvent
    while True:
        try:
            async with aclosing(connection.each(kind, "WatchRun", request, timeout=None)) as messages:
                async for message in messages:
                    backoff.reset()
                    if event := read_event(message):
                        batch.add(event)
                    if batch.overflown:
                        break
                else:
                    break  # the run has ended
            batch.overflown = False
            continue  # a new call begins with a snapshot
        except Unavailable as error:
            batch.restart("interrupted", {"reason": str(error)})
        except MoonfedError as error:
            batch.restart("failed", {"reason": str(error)})
            break
        await asyncio.sleep(backoff.next())
    batch.ended = True
    batch.changed.set()
