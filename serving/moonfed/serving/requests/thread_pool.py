"""The threads that run inference: few while requests are short, more while they block.

Most of a small model's request is Python, so extra threads only contend for the interpreter lock: on two cores, 2
threads answered 4,300 requests/s from 8 clients, 4 threads 3,500, 8 threads 3,200. A request that blocks (until a batch
fills, on a large model, on the rest of a slow client's message) costs only its thread, but the others then need one.

Compared in alternating turns on two busy cores (small CNN, medians of eight turns), a ThreadPoolExecutor of `limit`
threads answers 0.89 times as many requests, from 8 clients and from 64, and uses 1.13 and 1.17 times the server's CPU
time per request; with a semaphore that admits two calls at once, or any after 50 ms, 0.77 and 0.51 times as many.

A simpler rule for growing, calls started between two checks 50 or 100 ms apart, was no better: on a busy machine, where
checks are late, it added more threads, and used 1.2 times the CPU time per request with 64 clients.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from queue import SimpleQueue
from typing import Any

from moonfed.errors import Overloaded, Unavailable

CHECK_SECONDS = 0.01  # between checks while calls are queued or there are extra threads
STUCK_CHECKS = 5  # with calls queued and none started: double the threads
SLOW_CHECKS, SHORT_CALLS = 10, 50  # with calls queued and fewer started: likewise; more threads slow short calls down
IDLE_CHECKS = 100  # without growing, after which half of the extra threads end

_Call = tuple["Future[Any]", Callable[..., Any], tuple[Any, ...]]


class ElasticThreadPool:
    """An executor with `threads` threads, and up to `limit` while calls are queued and few of them start."""

    def __init__(self, *, threads: int, limit: int) -> None:
        self._base, self._limit = min(threads, limit), limit
        self._queue: SimpleQueue[_Call | None] = SimpleQueue()  # None ends the thread that gets it
        self._lock = threading.Lock()
        self._submitted, self._closed = threading.Event(), threading.Event()
        self._threads = self._started = self._in_flight = 0
        self.accepting = True  # in general; `require_capacity` decides for one call
        self._grow(self._base)
        threading.Thread(target=self._adjust, name="thread-pool", daemon=True).start()

    @property
    def in_flight(self) -> int:
        """The number of calls that run or are queued."""
        return self._in_flight

    @property
    def threads(self) -> int:
        """The present number of threads."""
        return self._threads

    def require_capacity(self) -> None:
        """Raise Overloaded if `limit` calls are in flight, Unavailable if the server is stopping."""
        if not self.accepting:
            raise Unavailable("Server is stopping and accepts no more inference requests")
        if self._in_flight >= self._limit:
            raise Overloaded(f"Server is busy with {self._limit} inference requests, as many as it takes at once")

    def stop_accepting(self) -> None:
        """Make `require_capacity` reject every call from now on; calls in flight continue."""
        self.accepting = False

    def submit(self, function: Callable[..., Any], /, *arguments: Any) -> Future[Any]:
        """Call the function on one of the threads."""
        future: Future[Any] = Future()
        with self._lock:
            self._in_flight += 1
        self._queue.put((future, function, arguments))
        if not self._submitted.is_set():
            self._submitted.set()
        return future

    async def call(self, function: Callable[..., Any], /, *arguments: Any) -> Any:
        """Call the function on one of the threads, and await its result.

        Unlike asyncio.wrap_future, this leaves no reference cycle, which would keep requests and answers in memory
        until Python collects garbage, however large they are.
        """
        answer = asyncio.get_running_loop().create_future()
        future = self.submit(function, *arguments)
        future.add_done_callback(partial(_pass_on, answer))
        try:
            return await answer
        except asyncio.CancelledError:
            future.cancel()
            raise
        finally:
            del answer, future  # an exception refers to this frame

    @contextmanager
    def count_call(self) -> Iterator[None]:
        """Count a call that the caller runs on its own thread; raise what `require_capacity` raises."""
        self.require_capacity()
        with self._lock:
            self._in_flight += 1
        try:
            yield
        finally:
            self._finish()

    def close(self) -> None:
        """End the threads once they have run every submitted call."""
        self._closed.set()
        self._submitted.set()
        for _ in range(self._threads):
            self._queue.put(None)

    def _grow(self, count: int) -> None:
        self._threads += count
        for _ in range(count):
            threading.Thread(target=self._run_calls, name="inference", daemon=True).start()

    def _shrink(self, count: int) -> None:
        self._threads -= count
        for _ in range(count):
            self._queue.put(None)

    def _run_calls(self) -> None:
        while call := self._queue.get():
            future, function, arguments = call
            self._started += 1
            if future.set_running_or_notify_cancel():
                self._run(future, function, arguments)
            else:
                self._finish()
            del call, future, function, arguments  # do not keep them alive until the next call

    def _run(self, future: Future[Any], function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        try:
            result = function(*arguments)
        except BaseException as error:
            self._finish()
            future.set_exception(error)
            del future  # the error refers to this frame; the cycle would keep the arguments in memory
        else:
            self._finish()
            future.set_result(result)

    def _finish(self) -> None:
        with self._lock:
            self._in_flight -= 1

    def _adjust(self) -> None:
        """Grow and shrink the pool; sleep while nothing is queued and there are no extra threads."""
        idle_checks, started = 0, deque[int](maxlen=SLOW_CHECKS)  # calls started, at each check with a queue
        while not self._closed.is_set():
            if self._threads == self._base and not self._queue.qsize():
                self._submitted.wait()
                self._submitted.clear()
            self._closed.wait(CHECK_SECONDS)
            idle_checks += 1
            if not self._queue.qsize():
                started.clear()
            elif self._threads < self._limit and _are_blocked(started, self._started):
                self._grow(min(self._threads, self._limit - self._threads))
                started.clear()
                idle_checks = 0
            else:
                started.append(self._started)
            if idle_checks >= IDLE_CHECKS and self._threads > self._base:
                self._shrink((self._threads - self._base + 1) // 2)
                idle_checks = 0


def _pass_on(answer: asyncio.Future[Any], future: Future[Any]) -> None:
    with suppress(RuntimeError):  # the event loop has ended, and nobody waits any more
        answer.get_loop().call_soon_threadsafe(_copy, future, answer)


def _copy(future: Future[Any], answer: asyncio.Future[Any]) -> None:
    if answer.cancelled():
        return
    if error := future.exception():
        answer.set_exception(error)
    else:
        answer.set_result(future.result())


def _are_blocked(before: Sequence[int], started: int) -> bool:
    """Decide whether the running calls block, from the numbers of calls started by the last checks and by now."""
    stuck = len(before) >= STUCK_CHECKS and started == before[-STUCK_CHECKS]
    slow = len(before) == SLOW_CHECKS and started - before[0] < SHORT_CALLS
    return stuck or slow
