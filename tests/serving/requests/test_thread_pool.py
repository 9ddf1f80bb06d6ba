from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

import pytest

from moonfed.errors import Overloaded, Unavailable
from moonfed.serving.requests import thread_pool
from moonfed.serving.requests.thread_pool import ElasticThreadPool


@pytest.fixture
def pool() -> Iterator[ElasticThreadPool]:
    made = ElasticThreadPool(threads=2, limit=40)
    yield made
    made.close()


def test_results_and_errors_are_returned(pool: ElasticThreadPool) -> None:
    assert [pool.submit(pow, 2, n).result() for n in range(9)] == [1, 2, 4, 8, 16, 32, 64, 128, 256]
    with pytest.raises(ZeroDivisionError):
        pool.submit(divmod, 1, 0).result()
    assert pool.in_flight == 0


def test_calls_that_wait_for_each_other_all_get_a_thread(pool: ElasticThreadPool) -> None:
    everybody = threading.Barrier(40)  # which two threads alone would never reach
    calls = [pool.submit(everybody.wait) for _ in range(40)]
    assert sorted(call.result() for call in calls) == list(range(40))


def test_a_single_queued_call_gets_a_thread(pool: ElasticThreadPool) -> None:
    taken, gate = threading.Semaphore(0), threading.Event()

    def hold() -> bool:
        taken.release()
        return gate.wait()

    slow = []
    for _ in range(2):
        slow.append(pool.submit(hold))
        taken.acquire()
    assert pool.submit(pow, 2, 3).result(timeout=30) == 8
    gate.set()
    assert all(call.result() for call in slow)


def test_extra_threads_end_when_they_are_not_needed(pool: ElasticThreadPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_pool, "IDLE_CHECKS", 10)
    everybody = threading.Barrier(40)
    for call in [pool.submit(everybody.wait) for _ in range(40)]:
        call.result()  # so there were 40 threads
    while pool.threads > 2:  # otherwise the test times out
        threading.Event().wait(0.01)
    assert pool.submit(pow, 2, 3).result() == 8


def test_calls_beyond_the_limit_are_rejected(pool: ElasticThreadPool) -> None:
    gate = threading.Event()
    calls = [pool.submit(gate.wait) for _ in range(39)]
    pool.require_capacity()
    with pool.count_call(), pytest.raises(Overloaded, match="busy with 40 inference requests, as many as it takes"):
        pool.require_capacity()
    pool.require_capacity()
    gate.set()
    assert all(call.result() for call in calls)


def test_a_stopping_pool_rejects_calls_and_finishes_those_in_flight(pool: ElasticThreadPool) -> None:
    gate = threading.Event()
    call = pool.submit(gate.wait)
    pool.stop_accepting()
    with pytest.raises(Unavailable, match="stopping"):
        pool.require_capacity()
    with pytest.raises(Unavailable, match="stopping"), pool.count_call():
        pass
    assert pool.in_flight == 1
    gate.set()
    assert call.result()


def test_nothing_is_lost_when_the_pool_are_closed() -> None:
    pool = ElasticThreadPool(threads=2, limit=8)
    calls = [pool.submit(partial(pow, 2), n) for n in range(100)]
    pool.close()
    assert [call.result() for call in calls] == [2**n for n in range(100)]


def test_a_cancelled_queued_call_costs_no_thread() -> None:
    pool, taken, gate = ElasticThreadPool(threads=1, limit=1), threading.Event(), threading.Event()

    def hold() -> bool:
        taken.set()
        return gate.wait()

    first = pool.submit(hold)
    taken.wait()
    assert pool.submit(gate.set).cancel()  # as asyncio does for an HTTP request when the server ends
    gate.set()
    assert first.result()
    assert pool.submit(pow, 2, 3).result(timeout=30) == 8
    assert pool.in_flight == 0
    pool.close()


class Body(bytearray):
    """A body that can be weakly referenced."""


@pytest.mark.parametrize("call", [len, int, str], ids=["answered", "invalid", "large answer"])
def test_neither_a_request_nor_its_answer_is_kept_until_garbage_is_collected(
    pool: ElasticThreadPool, call: Callable[[Body], object]
) -> None:
    kept: list[weakref.ref[object]] = []

    def answer(body: Body) -> object:
        found = Body(str(call(body)), "ascii")
        kept.append(weakref.ref(found))
        return found

    async def ask() -> None:
        body = Body(b"x" * 1000)
        kept.append(weakref.ref(body))
        with suppress(ValueError):
            await pool.call(answer, body)

    async def ask_and_look() -> list[object]:
        await ask()
        for _ in range(500):  # until the pool's thread has dropped its references
            if any(each() for each in kept):
                await asyncio.sleep(0.01)
        return [each() for each in kept]

    gc.disable()
    try:
        assert asyncio.run(ask_and_look()) == [None] * len(kept)
    finally:
        gc.enable()


def test_a_cancelled_call_that_is_queued_is_not_made() -> None:
    pool, gate, calls = ElasticThreadPool(threads=1, limit=1), threading.Event(), list[int]()

    async def cancel_one() -> None:
        waiting = [asyncio.create_task(pool.call(gate.wait)), asyncio.create_task(pool.call(calls.append, 1))]
        await asyncio.sleep(0)
        waiting[1].cancel()
        await asyncio.wait(waiting[1:])
        gate.set()
        await waiting[0]

    asyncio.run(cancel_one())
    pool.close()
    assert calls == []
