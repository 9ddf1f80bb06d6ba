"""Closed-loop load: callers that repeat a call as soon as it returns; throughput and latency."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

WARM_UP_SECONDS = 1.0  # at most; a measurement that is shorter has a warm-up of its own length
POLL_SECONDS = 0.01


@dataclass(frozen=True, slots=True)
class LoadResult:
    """Throughput and latency of one measurement."""

    rate: float  # calls a second
    median_ms: float
    p99_ms: float


def measure(calls: Sequence[Callable[[], object]], seconds: float) -> LoadResult:
    """Repeat each call in its own thread; measure for `seconds` after a warm-up.

    All callers continue until the last call in flight at the end has returned, so that every counted call ran under
    full load. Re-raises an exception of a call.
    """
    callers, stop = [_Caller(call) for call in calls], threading.Event()
    with ThreadPoolExecutor(len(calls)) as pool:
        running = [pool.submit(caller.run, stop) for caller in callers]
        try:
            _until_answered(callers, running, time.perf_counter() + min(WARM_UP_SECONDS, seconds))
            begin = time.perf_counter()
            time.sleep(seconds)
            end = time.perf_counter()
            _until_answered(callers, running, end)
        finally:
            stop.set()
    return summarise([times for caller in callers for times in caller.times], begin, end)


def summarise(calls: Sequence[tuple[float, float]], begin: float, end: float) -> LoadResult:
    """Summarise a window, given the start and end of each call in seconds.

    A call counts by the fraction of its duration inside the window. Counting only whole calls would miss up to two per
    caller, which matters for long calls; counting by end times would count or miss simultaneous calls by chance.
    Latencies are those of calls that ended inside the window.
    """
    began, ended = np.array(calls).T
    taken = ended - began
    inside = np.clip(np.minimum(ended, end) - np.maximum(began, begin), 0, None)
    median, tail = np.quantile(taken[(begin < ended) & (ended <= end)], [0.5, 0.99])
    return LoadResult(
        rate=float((inside / taken).sum()) / (end - begin), median_ms=1e3 * float(median), p99_ms=1e3 * float(tail)
    )


class _Caller:
    """Records the start and end of each of its calls."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call
        self.times: list[tuple[float, float]] = []

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            began = time.perf_counter()
            self._call()
            self.times.append((began, time.perf_counter()))

    def answered_since(self, moment: float) -> bool:
        return bool(self.times) and self.times[-1][1] > moment


def _until_answered(callers: Sequence[_Caller], running: Sequence[Future[None]], moment: float) -> None:
    """Wait until a call of each caller has returned after that moment; re-raise an exception of a caller."""
    while not all(caller.answered_since(moment) for caller in callers):
        for each in running:
            if each.done():
                each.result()
        time.sleep(POLL_SECONDS)
