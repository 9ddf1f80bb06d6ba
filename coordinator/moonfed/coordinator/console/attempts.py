"""A limit on failed logins: by address and account, by address, and of all addresses together.

Nobody can lock an operator out of the operator's own address from elsewhere: beyond the limit of all, only addresses
that have failed themselves must wait. So all addresses together have at most OF_ALL guesses per window, plus one for
each address.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from moonfed.coordinator.rpc.sockets import network_of

WINDOW = 60.0  # seconds
OF_ONE, OF_ADDRESS, OF_ALL = 5, 20, 60  # failures within the window, after which logins are refused unseen
MOST_KEYS = 2048  # addresses, and accounts with an address, that are remembered; beyond, the oldest is forgotten
_LONGEST_ACCOUNT = 100  # characters

_Key = tuple[str, str | None]  # address and account; None: every account


class LoginAttempts:
    """The recent failures to log in."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._all: deque[float] = deque(maxlen=OF_ALL)
        self._by_key: dict[_Key, deque[float]] = {}

    def wait(self, address: str, account: str) -> float:
        """Return the seconds until this address may try to log in to an account; 0: now."""
        now, (one, every) = self._clock(), _keys(address, account)
        of_address = self._by_key.get(every, deque())
        waits = [_wait(self._by_key.get(one, deque()), OF_ONE, now), _wait(of_address, OF_ADDRESS, now)]
        if of_address:
            waits.append(_wait(self._all, OF_ALL, now))
        return max(waits)

    def begin(self, address: str, account: str) -> None:
        """Record an attempt as failed until it succeeds, so that simultaneous ones count."""
        now = self._clock()
        for key in _keys(address, account):
            failures = self._by_key.pop(key, None)
            if failures is None and len(self._by_key) >= MOST_KEYS:
                del self._by_key[next(iter(self._by_key))]
            self._by_key[key] = deque(maxlen=OF_ADDRESS) if failures is None else failures
            self._by_key[key].append(now)
        self._all.append(now)

    def succeed(self, address: str, account: str) -> None:
        """Forget an attempt, and the failures of this address with this account."""
        one, every = _keys(address, account)
        self._by_key.pop(one, None)
        for failures in (self._by_key.get(every), self._all):
            if failures:
                failures.pop()


def _keys(address: str, account: str) -> tuple[_Key, _Key]:
    network = network_of(address)
    return (network, account[:_LONGEST_ACCOUNT]), (network, None)


def _wait(failures: deque[float], most: int, now: float) -> float:
    while failures and failures[0] <= now - WINDOW:
        failures.popleft()
    return failures[-most] + WINDOW - now if len(failures) >= most else 0.0
