"""Callers that each call again as soon as they are answered: how many calls a second, and how long one takes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

WARM_UP_SECONDS = 1.0
LOOK_SECONDS = 0.01


@dataclass(frozen=True, slots=True)
class Load:
    """What callers get of whatever answers them."""

    rate: float  # calls a second
    median_ms: float
    p99_ms: float


def measure(calls: Sequence[Callable[[], object]], seconds: float) -> Load:
    """Makes each call again and again in a thread of its own; what they get in so many seconds, after a warm-up.

    All go on until the last call that the end cuts is answered, so that every one that counts met the whole load.
    Raises what a call raises.
    """
    callers, stop = [_Caller(call) for call in calls], threading.Event()
    with ThreadPoolExecutor(len(calls)) as pool:
        running = [pool.submit(caller.run, stop) for caller in callers]
        try:
            _until_answered(callers, running, time.perf_counter() + WARM_UP_SECONDS)
            begin = time.perf_counter()
            time.sleep(seconds)
            end = time.perf_counter()
            _until_answered(callers, running, end)
        finally:
            stop.set()
    return summarise([times for caller in callers for times in caller.times], begin, end)


def summarise(calls: Sequence[tuple[float, float]], begin: float, end: float) -> Load:
    """The load of a window, from when each call began and ended, in seconds.

    A call counts by the part of its time that lies in the window. Whole ones alone would be up to two too few for each
    caller, which is much where a call takes long; counted by their ends, those that end together would count or not by
    chance. Latencies are of the calls that ended in the window.
    """
    began, ended = np.array(calls).T
    taken = ended - began
    inside = np.clip(np.minimum(ended, end) - np.maximum(began, begin), 0, None)
    median, tail = np.quantile(taken[(begin < ended) & (ended <= end)], [0.5, 0.99])
    return Load(
        rate=float((inside / taken).sum()) / (end - begin), median_ms=1e3 * float(median), p99_ms=1e3 * float(tail)
    )


class _Caller:
    """Notes when each of its calls began and ended."""

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
    """Waits until each has been answered after that moment; raises what ended one."""
    while not all(caller.answered_since(moment) for caller in callers):
        for each in running:
            if each.done():
                each.result()
        time.sleep(LOOK_SECONDS)
