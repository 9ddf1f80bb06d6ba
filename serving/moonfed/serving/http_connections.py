"""The HTTP connections of a listening socket, limited in number and in the bytes of their unanswered requests.

Beyond a limit, one connection is closed: the one that has waited longest for a request, or the one with the most bytes
of an unfinished request. So small requests are answered even if others send large ones or nothing.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from moonfed.serving.request_limits import RequestLimits

Connection = TypeVar("Connection")


class Connections(Generic[Connection]):
    """The connections of one socket. Only the event loop's thread uses it."""

    def __init__(self, limits: RequestLimits, *, limit: int, max_body_bytes: int) -> None:
        self.limits, self.max_body_bytes = limits, max_body_bytes
        self._limit = limit
        self._open: set[Connection] = set()
        self._waiting: dict[Connection, None] = {}  # for a complete request, the longest first
        self._bytes: dict[Connection, int] = {}  # of unanswered bodies
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

    def receive(self, connection: Connection, size: int) -> Connection | None:
        """Add bytes of a body; return the connection to reject if the total is too large."""
        held = self._bytes.get(connection, 0)
        size = min(size, self.max_body_bytes - held)  # the application drops what exceeds it
        self._bytes[connection] = held + size
        self._total += size
        if self._total <= self.limits.pending_bytes:
            return None
        excess = max(self._waiting, key=lambda each: self._bytes.get(each, 0))
        self.remove(excess)
        return excess

    def release(self, connection: Connection) -> None:
        """Subtract the bytes of requests that were answered."""
        self._total -= self._bytes.pop(connection, 0)

    def remove(self, connection: Connection) -> None:
        """Remove a connection."""
        self._open.discard(connection)
        self._waiting.pop(connection, None)
        self.release(connection)
