"""What callers get, counted from when their calls began and ended."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from benchmarks.load.closed_loop import measure, summarise

Calls = list[tuple[float, float]]


def one_after_another(taken: float, first: float, until: float) -> Calls:
    """A caller's calls that take that long each, the first from then on, until one ends after the given moment."""
    count = int((until - first) / taken) + 1
    return [(first + taken * number, first + taken * (number + 1)) for number in range(count)]


@pytest.mark.parametrize("first", [0.0, 0.1, 0.3, 0.49])
@pytest.mark.parametrize("seconds", [1.0, 1.3, 4.0, 4.4])
def test_calls_that_the_window_cuts_count_by_what_lies_in_it(first: float, seconds: float) -> None:
    calls = one_after_another(0.5, first, 1 + seconds) + one_after_another(0.25, first, 1 + seconds)
    load = summarise(calls, 1.0, 1 + seconds)
    assert load.rate == pytest.approx(2 + 4)  # a caller whose calls take half a second makes two of them a second


def test_a_call_longer_than_the_window_counts_too() -> None:
    calls = [(0.0, 8.0), *one_after_another(0.5, 0.0, 3.0)]
    assert summarise(calls, 1.0, 3.0).rate == pytest.approx(2 + 1 / 8)


def test_calls_before_and_after_the_window_do_not_count() -> None:
    calls = [(0.0, 1.0), (1.0, 1.5), (1.5, 2.0), (2.0, 9.0)]
    load = summarise(calls, 1.0, 2.0)
    assert load.rate == pytest.approx(2)
    assert load.median_ms == load.p99_ms == pytest.approx(500)


def test_latencies_are_of_the_calls_that_ended_in_the_window() -> None:
    ends = np.linspace(1.01, 2, 100)
    calls = [(end - number / 1000, end) for number, end in enumerate(ends, start=1)]
    load = summarise([*calls, (0.0, 0.9), (0.0, 7.0)], 1.0, 2.0)
    assert load.median_ms == pytest.approx(50.5)
    assert load.p99_ms == pytest.approx(99.01)


def test_every_caller_has_a_thread_of_its_own() -> None:
    together = threading.Barrier(3)

    def waiting_once() -> Callable[[], object]:
        """Of those that stop, none may wait for another: only the first calls wait until all three have called."""
        first = iter([together.wait])
        return lambda: next(first, partial(time.sleep, 0.001))()

    load = measure([waiting_once() for _ in range(3)], 0.01)
    assert load.rate > 0
    assert load.median_ms <= load.p99_ms


def test_what_a_call_raises_is_raised() -> None:
    answered = threading.Semaphore(5)

    def call() -> None:
        if not answered.acquire(blocking=False):
            raise ConnectionError("the server is gone")

    with pytest.raises(ConnectionError, match="the server is gone"):
        measure([call, lambda: None], 60.0)
