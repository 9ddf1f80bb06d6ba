"""The threads that answer requests: few while requests are short, more while they wait.

A request of a small model is mostly Python, and threads beyond a few only fight over the interpreter: on two cores
2 threads answered some 4,300 requests a second, 4 threads 3,500, 8 threads 3,200. A request that waits (for a batch to
fill, for a large model, for the rest of a slow client's message) costs nothing but its thread, and the others need one,
too.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any

from moonfed.errors import Overloaded, Unavailable

LOOK_SECONDS = 0.01
STUCK_LOOKS = 5  # with calls that wait and none taken
SLOW_LOOKS, SHORT_CALLS = 10, 50  # with calls that wait and fewer taken; of short calls more threads make fewer
CALM_LOOKS = 100  # without need of a thread, until half of the added ones go

_Call = tuple["Future[Any]", Callable[..., Any], tuple[Any, ...]]


class Workers:
    """An executor with `threads` threads, up to `limit` while calls wait and fewer than 500 a second are taken."""

    def __init__(self, *, threads: int, limit: int) -> None:
        self._base, self._limit = min(threads, limit), limit
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._submitted, self._closed = threading.Event(), threading.Event()
        self._threads = self._taken = self._in_flight = 0
        self.accepting = True  # in general; `check` says whether right now
        self._add(self._base)
        threading.Thread(target=self._watch, name="workers", daemon=True).start()

    @property
    def in_flight(self) -> int:
        """How many calls are under way or wait for a thread."""
        return self._in_flight

    @property
    def threads(self) -> int:
        """How many threads there are."""
        return self._threads

    def check(self) -> None:
        """Raises Overloaded if there are as many calls as may be, Unavailable if no more are taken."""
        if not self.accepting:
            raise Unavailable("Server is stopping and takes no more inference requests")
        if self._in_flight >= self._limit:
            raise Overloaded(f"Server is busy with {self._limit} inference requests, as many as it takes at once")

    def refuse(self) -> None:
        """Makes `check` refuse from now on; what is under way goes on."""
        self.accepting = False

    def submit(self, function: Callable[..., Any], /, *arguments: Any) -> Future[Any]:  # noqa: ANN401
        """Calls the function on one of the threads."""
        future: Future[Any] = Future()
        with self._lock:
            self._in_flight += 1
        self._calls.put((future, function, arguments))
        if not self._submitted.is_set():
            self._submitted.set()
        return future

    @contextmanager
    def elsewhere(self) -> Iterator[None]:
        """Counts a call that is made in a thread of somebody else's; raises what `check` does."""
        self.check()
        with self._lock:
            self._in_flight += 1
        try:
            yield
        finally:
            self._finish()

    def close(self) -> None:
        """Ends the threads, once they have done what was submitted."""
        self._closed.set()
        self._submitted.set()
        for _ in range(self._threads):
            self._calls.put(None)

    def _add(self, count: int) -> None:
        self._threads += count
        for _ in range(count):
            threading.Thread(target=self._work, name="worker", daemon=True).start()

    def _work(self) -> None:
        while call := self._calls.get():
            future, function, arguments = call
            self._taken += 1
            if future.set_running_or_notify_cancel():
                self._answer(future, function, arguments)
            else:
                self._finish()
            del call, future, function, arguments  # not to be kept until the next one

    def _answer(self, future: Future[Any], function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        try:
            result = function(*arguments)
        except BaseException as error:
            self._finish()
            future.set_exception(error)
        else:
            self._finish()
            future.set_result(result)

    def _finish(self) -> None:
        with self._lock:
            self._in_flight -= 1

    def _watch(self) -> None:
        """Looks whether calls wait: once one was submitted, and while some wait or there are threads too many."""
        calm, taken = 0, deque[int](maxlen=SLOW_LOOKS)  # at each look since when calls wait
        while not self._closed.is_set():
            if self._threads == self._base and not self._calls.qsize():
                self._submitted.wait()
                self._submitted.clear()
            self._closed.wait(LOOK_SECONDS)
            calm += 1
            if not self._calls.qsize():
                taken.clear()
            elif self._threads < self._limit and _needs_threads(taken, self._taken):
                self._add(min(self._threads, self._limit - self._threads))
                taken.clear()
                calm = 0
            else:
                taken.append(self._taken)
            if calm >= CALM_LOOKS and self._threads > self._base:
                self._retire((self._threads - self._base + 1) // 2)
                calm = 0

    def _retire(self, count: int) -> None:
        self._threads -= count
        for _ in range(count):
            self._calls.put(None)


def _needs_threads(before: Sequence[int], taken: int) -> bool:
    """Whether calls wait for others that wait, by how many were taken until each of the last looks and until now."""
    stuck = len(before) >= STUCK_LOOKS and taken == before[-STUCK_LOOKS]
    slow = len(before) == SLOW_LOOKS and taken - before[0] < SHORT_CALLS
    return stuck or slow
