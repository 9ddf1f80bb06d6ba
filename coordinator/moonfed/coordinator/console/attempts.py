"""A limit on failed logins: by address, and of all addresses together."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

WINDOW = 60.0  # seconds
OF_ONE, OF_ALL = 5, 60  # failures within the window, after which logins are refused unseen
MOST_ADDRESSES = 1024  # remembered; beyond, the limit of all applies


class LoginAttempts:
    """The recent failures to log in."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._all: deque[float] = deque()
        self._by_address: dict[str, deque[float]] = {}

    def wait(self, address: str) -> float:
        """Return the seconds until this address may try again; 0: now."""
        now = self._clock()
        found = self._by_address.get(address, deque())
        return max(_wait(found, OF_ONE, now), _wait(self._all, OF_ALL, now))

    def fail(self, address: str) -> None:
        """Record a failure."""
        now = self._clock()
        if address not in self._by_address and len(self._by_address) >= MOST_ADDRESSES:
            del self._by_address[next(iter(self._by_address))]
        for failures in (self._by_address.setdefault(address, deque()), self._all):
            failures.append(now)

    def succeed(self, address: str) -> None:
        """Forget an address's failures."""
        self._by_address.pop(address, None)


def _wait(failures: deque[float], most: int, now: float) -> float:
    while failures and failures[0] <= now - WINDOW:
        failures.popleft()
    return failures[-most] + WINDOW - now if len(failures) >= most else 0.0
