"""The HTTP connections of a listening socket, limited in number and in the bytes of their unanswered requests.

Beyond a limit, one connection is closed: the one that has waited longest for a request, or the one with the most bytes
of an unfinished request. So small requests are answered even if others send large ones or nothing.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Generic, TypeVar

from moonfed.serving.requests.limits import RequestLimits

Connection = TypeVar("Connection")


@dataclass(slots=True, eq=False)
class Body:
    """The body of an unanswered request, and how many of its bytes count towards the limit."""

    bytes: int = 0
    complete: bool = False


class Connections(Generic[Connection]):
    """The connections of one socket. Only the event loop's thread uses it."""

    def __init__(self, limits: RequestLimits, *, limit: int, max_body_bytes: int) -> None:
        self.limits, self.max_body_bytes = limits, max_body_bytes
        self._limit = limit
        self._open: set[Connection] = set()
        self._waiting: dict[Connection, None] = {}  # for a complete request, the longest first
        self._bodies: dict[Connection, deque[Body]] = {}  # of unanswered requests, in their order
        self._total = 0

    def admit(self, connection: Connection) -> Connection | None:
        """Add a connection; return the one to reject, if any: the new one if all others have a request in progress."""
        excess = None
        if len(self._open) >= self._limit:
            excess = next(iter(self._waiting), connection)
            self.remove(excess)
        if excess is not connection:
            self._open.add(connection)
            self._waiting[connection] = None
        return excess

    def set_waiting(self, connection: Connection, waiting: bool) -> None:
        """Record whether a connection waits for a request or for the rest of one."""
        self._waiting.pop(connection, None)
        if waiting and connection in self._open:
            self._waiting[connection] = None

    def begin_body(self, connection: Connection) -> Body:
        """Add a request; return its body, to be passed to `finish` once the application has finished."""
        body = Body()
        self._bodies.setdefault(connection, deque()).append(body)
        return body

    def receive(self, connection: Connection, size: int) -> Connection | None:
        """Add bytes of the newest body; return the connection to reject if the total is too large."""
        if not (bodies := self._bodies.get(connection)):
            return None  # answered already, so nothing is kept
        size = min(size, self.max_body_bytes - bodies[-1].bytes)  # the application drops what exceeds it
        bodies[-1].bytes += size
        self._total += size
        if self._total <= self.limits.pending_bytes:
            return None
        excess = max(self._waiting, key=self._bytes)
        self.remove(excess)
        return excess

    def answered(self, connection: Connection) -> None:
        """Subtract the bytes of the oldest request."""
        if bodies := self._bodies.get(connection):
            self.finish(bodies.popleft())

    def finish(self, body: Body) -> None:
        """Subtract the bytes of a request with which the application has finished."""
        self._total -= body.bytes
        body.bytes = 0

    def remove(self, connection: Connection) -> None:
        """Remove a connection; a complete request that the application works on counts until `finish`."""
        self._open.discard(connection)
        self._waiting.pop(connection, None)
        for number, body in enumerate(self._bodies.pop(connection, ())):
            if number or not body.complete:
                self.finish(body)

    def _bytes(self, connection: Connection) -> int:
        return sum(body.bytes for body in self._bodies.get(connection, ()))
