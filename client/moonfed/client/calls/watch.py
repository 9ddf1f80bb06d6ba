"""A watched run: events across interruptions, none of a committed round lost, and always an end."""

from __future__ import annotations

from moonfed.client.calls import runs
from moonfed.client.calls.steps import Steps
from moonfed.client.convert import events as convert
from moonfed.client.records.events import Ended, Event, RoundCommitted, Snapshot
from moonfed.v1 import control_pb2


class Watch:
    """A run's events so far."""

    def __init__(self, run: str) -> None:
        self.run = run
        self.ended = False
        self._committed: int | None = None  # the newest committed round that was reported; None: no snapshot yet

    def receive(self, message: control_pb2.RunEvent) -> Steps[list[Event]]:
        """Return the events to report for one received."""
        event = convert.event(message)
        match event:
            case None:
                return []
            case Snapshot() | Ended():
                missed = yield from self._missed(event.run.round)
                self.ended = isinstance(event, Ended)
                return [*missed, event]
            case RoundCommitted():
                if self._committed is not None and event.round <= self._committed:
                    return []  # the snapshot has it
                self._committed = event.round
        return [event]

    def close(self) -> Steps[list[Event]]:
        """Return the events to report after a stream has ended; the stream may not have reported the run's end."""
        if self.ended:
            return []
        found = yield from runs.run(self.run)
        if found.active:
            return []  # watch again
        missed = yield from self._missed(found.round)
        self.ended = True
        return [*missed, Ended(run=found)]

    def _missed(self, newest: int) -> Steps[list[Event]]:
        """Return the events of rounds that were committed while nobody was listening."""
        before, self._committed = self._committed, newest
        if before is None or newest <= before:
            return []
        past = yield from runs.rounds(self.run)
        return [convert.committed(one) for one in past if one.status == "committed" and before < one.round <= newest]
