"""A watched run: events across interruptions, none of a committed round lost, and always an end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing

from moonfed.client.aio.connection import AsyncConnection
from moonfed.control.codec import read_event
from moonfed.control.events import Ended, Event, Interrupted, RoundCommitted, RunEvent, Snapshot
from moonfed.control.runs import Round, Run
from moonfed.errors import Unavailable
from moonfed.transport.client import Backoff
from moonfed.v1 import control_pb2


class AsyncWatch:
    """A run's events so far. `progress`: also those of single devices' training."""

    def __init__(self, connection: AsyncConnection, run: str, *, progress: bool) -> None:
        self._connection = connection
        self._request = control_pb2.WatchRunRequest(run=run, progress=progress)
        self._ended = False
        self._committed: int | None = None  # the newest committed round that was reported; None: no snapshot yet

    async def events(self) -> AsyncIterator[Event]:
        """Yield events until the run has ended, reconnecting after interruptions."""
        backoff, kind = Backoff(limit=10.0), control_pb2.RunEvent
        while not self._ended:
            try:
                async with aclosing(self._connection.each(kind, "WatchRun", self._request, timeout=None)) as messages:
                    async for message in messages:
                        backoff.reset()
                        for event in await self._shown(read_event(message)):
                            yield event
                for event in await self._closed():
                    yield event
            except Unavailable as problem:
                yield Interrupted(reason=str(problem))
            if not self._ended:
                await self._connection.sleep(backoff.next())

    async def _shown(self, event: RunEvent | None) -> list[Event]:
        """Return the events to report for one received."""
        match event:
            case None:
                return []
            case Snapshot() | Ended():
                missed = await self._missed(event.run.round)
                self._ended = isinstance(event, Ended)
                return [*missed, event]
            case RoundCommitted():
                if self._committed is not None and event.round <= self._committed:
                    return []  # the snapshot has it
                self._committed = event.round
        return [event]

    async def _closed(self) -> list[Event]:
        """Return the events to report after a stream has ended; the stream may not have reported the run's end."""
        if self._ended:
            return []
        found = await self._connection.ask(Run, "GetRun", control_pb2.GetRunRequest(run=self._request.run))
        if found.active:
            return []  # watch again
        missed = await self._missed(found.round)
        self._ended = True
        return [*missed, Ended(run=found)]

    async def _missed(self, newest: int) -> list[Event]:
        """Return the events of rounds that were committed while nobody was listening."""
        before, self._committed = self._committed, newest
        if before is None or newest <= before:
            return []
        request = control_pb2.ListRoundsRequest(run=self._request.run)
        past = await self._connection.ask_all(Round, "ListRounds", request)
        return [_committed(one) for one in past if one.status == "committed" and before < one.round <= newest]


def _committed(found: Round) -> RoundCommitted:
    """Return the event of a round that was committed while the connection was lost."""
    return RoundCommitted(
        round=found.round,
        attempt=found.attempt,
        counted=found.counted,
        model=found.model,
        metrics=found.metrics,
        incidents="; ".join(f"{one.device}: {one.description}" for one in found.incidents),
    )
