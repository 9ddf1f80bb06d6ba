from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial

import pytest

from moonfed.errors import Overloaded, Unavailable
from moonfed.serving.worker_threads import Workers


@pytest.fixture
def workers() -> Iterator[Workers]:
    made = Workers(threads=2, limit=40)
    yield made
    made.close()


def test_results_and_errors_come_back(workers: Workers) -> None:
    assert [workers.submit(pow, 2, n).result() for n in range(9)] == [1, 2, 4, 8, 16, 32, 64, 128, 256]
    with pytest.raises(ZeroDivisionError):
        workers.submit(divmod, 1, 0).result()
    assert workers.in_flight == 0


def test_calls_that_wait_for_each_other_all_get_a_thread(workers: Workers) -> None:
    everybody = threading.Barrier(40)  # which two threads alone would never reach
    calls = [workers.submit(everybody.wait) for _ in range(40)]
    assert sorted(call.result() for call in calls) == list(range(40))


def test_a_call_that_waits_alone_for_busy_threads_gets_one(workers: Workers) -> None:
    taken, gate = threading.Semaphore(0), threading.Event()

    def hold() -> bool:
        taken.release()
        return gate.wait()

    slow = []
    for _ in range(2):
        slow.append(workers.submit(hold))
        taken.acquire()
    assert workers.submit(pow, 2, 3).result(timeout=30) == 8
    gate.set()
    assert all(call.result() for call in slow)


def test_threads_that_were_added_go_when_they_are_not_needed(workers: Workers) -> None:
    everybody = threading.Barrier(40)
    for call in [workers.submit(everybody.wait) for _ in range(40)]:
        call.result()  # so there were 40 threads
    while workers.threads > 2:  # else the test's time limit tells
        threading.Event().wait(0.01)
    assert workers.submit(pow, 2, 3).result() == 8


def test_more_calls_than_the_limit_are_refused(workers: Workers) -> None:
    gate = threading.Event()
    calls = [workers.submit(gate.wait) for _ in range(39)]
    workers.check()
    with workers.elsewhere(), pytest.raises(Overloaded, match="busy with 40 inference requests, as many as it takes"):
        workers.check()
    workers.check()
    gate.set()
    assert all(call.result() for call in calls)


def test_a_server_that_stops_refuses_calls_and_ends_those_under_way(workers: Workers) -> None:
    gate = threading.Event()
    call = workers.submit(gate.wait)
    workers.refuse()
    with pytest.raises(Unavailable, match="stopping"):
        workers.check()
    with pytest.raises(Unavailable, match="stopping"), workers.elsewhere():
        pass
    assert workers.in_flight == 1
    gate.set()
    assert call.result()


def test_nothing_is_lost_when_the_workers_are_closed() -> None:
    workers = Workers(threads=2, limit=8)
    calls = [workers.submit(partial(pow, 2), n) for n in range(100)]
    workers.close()
    assert [call.result() for call in calls] == [2**n for n in range(100)]


def test_a_call_that_is_cancelled_while_it_waits_costs_no_thread() -> None:
    workers, taken, gate = Workers(threads=1, limit=1), threading.Event(), threading.Event()

    def hold() -> bool:
        taken.set()
        return gate.wait()

    first = workers.submit(hold)
    taken.wait()
    assert workers.submit(gate.set).cancel()  # as asyncio does for an HTTP request when the server ends
    gate.set()
    assert first.result()
    assert workers.submit(pow, 2, 3).result(timeout=30) == 8
    assert workers.in_flight == 0
    workers.close()
