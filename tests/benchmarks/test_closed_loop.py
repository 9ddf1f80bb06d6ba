"""Throughput and latency from the start and end of calls."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from benchmarks.load.closed_loop import measure, summarise

pytestmark = pytest.mark.slow

Calls = list[tuple[float, float]]


def consecutive(taken: float, first: float, until: float) -> Calls:
    """Return a caller's consecutive calls of equal duration, until one ends after `until`."""
    count = int((until - first) / taken) + 1
    return [(first + taken * number, first + taken * (number + 1)) for number in range(count)]


@pytest.mark.parametrize("first", [0.0, 0.1, 0.3, 0.49])
@pytest.mark.parametrize("seconds", [1.0, 1.3, 4.0, 4.4])
def test_a_call_counts_by_the_fraction_inside_the_window(first: float, seconds: float) -> None:
    calls = consecutive(0.5, first, 1 + seconds) + consecutive(0.25, first, 1 + seconds)
    load = summarise(calls, 1.0, 1 + seconds)
    assert load.rate == pytest.approx(2 + 4)  # calls of half a second are two per second


def test_a_call_longer_than_the_window_counts() -> None:
    calls = [(0.0, 8.0), *consecutive(0.5, 0.0, 3.0)]
    assert summarise(calls, 1.0, 3.0).rate == pytest.approx(2 + 1 / 8)


def test_calls_before_and_after_the_window_do_not_count() -> None:
    calls = [(0.0, 1.0), (1.0, 1.5), (1.5, 2.0), (2.0, 9.0)]
    load = summarise(calls, 1.0, 2.0)
    assert load.rate == pytest.approx(2)
    assert load.median_ms == load.p99_ms == pytest.approx(500)


def test_latencies_are_those_of_calls_that_ended_in_the_window() -> None:
    ends = np.linspace(1.01, 2, 100)
    calls = [(end - number / 1000, end) for number, end in enumerate(ends, start=1)]
    load = summarise([*calls, (0.0, 0.9), (0.0, 7.0)], 1.0, 2.0)
    assert load.median_ms == pytest.approx(50.5)
    assert load.p99_ms == pytest.approx(99.01)


def test_every_caller_has_its_own_thread() -> None:
    together = threading.Barrier(3)

    def waiting_once() -> Callable[[], object]:
        """Wait only in the first call, so that no caller waits for one that has stopped."""
        first = iter([together.wait])
        return lambda: next(first, partial(time.sleep, 0.001))()

    load = measure([waiting_once() for _ in range(3)], 0.01)
    assert load.rate > 0
    assert load.median_ms <= load.p99_ms


def test_an_exception_of_a_call_is_raised() -> None:
    answered = threading.Semaphore(5)

    def call() -> None:
        if not answered.acquire(blocking=False):
            raise ConnectionError("the server is gone")

    with pytest.raises(ConnectionError, match="the server is gone"):
        measure([call, lambda: None], 60.0)
