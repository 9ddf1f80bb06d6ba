"""Rate limits of calls: per caller, and of the whole fleet."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from moonfed.errors import Overloaded

EVICTION_SECONDS = 1.0  # between two scans of all callers, since an attacker may have many addresses


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimits:
    """Limits of calls to Fleet or Enrolment. Health and Control have none, so that operators can act in a flood."""

    calls: int = 10_000  # at once; an idle device has one open, of about 100 kB
    calls_of_one: int = 32  # at once, by one caller
    per_second: float = 50.0  # that one caller may begin, on average
    burst: int = 500  # that one caller may begin at once


@dataclass(slots=True)
class _Caller:
    """One caller's calls under way, and its token bucket."""

    calls: int
    left: float
    seen: float  # when `left` was computed


class RateLimiter:
    """Admits calls; a caller is a certificate's name, or an address that enrols."""

    def __init__(self, limits: RateLimits = RateLimits(), clock: Callable[[], float] = time.monotonic) -> None:
        self._limits, self._clock = limits, clock
        self._calls = 0
        self._callers: dict[str, _Caller] = {}
        self._next_eviction = 0.0

    @contextmanager
    def call(self, name: str) -> Iterator[None]:
        """Admit one call for as long as the context lasts; raises Overloaded, with the time to wait."""
        caller = self._admitted(name)
        self._calls += 1
        caller.calls += 1
        try:
            yield
        finally:
            self._calls -= 1
            caller.calls -= 1
            if not caller.calls and len(self._callers) > self._limits.calls and self._clock() >= self._next_eviction:
                self._evict()

    def _admitted(self, name: str) -> _Caller:
        limits, now = self._limits, self._clock()
        if self._calls >= limits.calls:
            raise Overloaded(f"the coordinator has {self._calls} calls to answer, its maximum; retry later")
        caller = self._callers.setdefault(name, _Caller(0, limits.burst, now))
        if caller.calls >= limits.calls_of_one:
            raise Overloaded(
                f"{name!r} has {caller.calls} calls under way, the maximum for one caller; end one, then retry"
            )
        caller.left = min(limits.burst, caller.left + (now - caller.seen) * limits.per_second)
        caller.seen = now
        if caller.left < 1:
            seconds = (1 - caller.left) / limits.per_second
            raise Overloaded(
                f"{name!r} calls too often: {limits.per_second:g} times a second is allowed; retry in {seconds:.2f} s"
            )
        caller.left -= 1
        return caller

    def _evict(self) -> None:
        """Remove callers that have no call under way and whose bucket is full again."""
        self._next_eviction = self._clock() + EVICTION_SECONDS
        full = self._clock() - self._limits.burst / self._limits.per_second
        for name in [name for name, caller in self._callers.items() if not caller.calls and caller.seen < full]:
            del self._callers[name]
