"""Calls whose message is still arriving: which of them are cancelled."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import grpc
import pytest

from moonfed.serving.grpc import receiving as module
from moonfed.serving.grpc.receiving import CHECK_SECONDS, ReceivingCalls
from moonfed.serving.requests.limits import RequestLimits
from tests.support.clock import Clock
from tests.support.gates import until

LIMITS = RequestLimits(message_seconds=60.0, pending_bytes=1000)
MAX_MESSAGE = 250  # so that four calls are affordable


class Call:
    """A call whose message does not arrive until it is cancelled or sent."""

    def __init__(self, client: str) -> None:
        self.client, self.cancelled = client, False
        self._ended = threading.Event()
        self._messages: list[str] = []

    def peer(self) -> str:
        return self.client

    def cancel(self) -> None:
        self.cancelled = True
        self._ended.set()

    def send(self, message: str) -> None:
        self._messages.append(message)
        self._ended.set()

    def messages(self) -> Iterator[str]:
        self._ended.wait(60)
        yield from self._messages


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The process's memory in bytes."""
    memory = [10_000]
    monkeypatch.setattr(module, "_resident_bytes", lambda: memory[0])
    return memory


@pytest.fixture
def receiving(clock: Clock, memory: list[int]) -> ReceivingCalls:
    receiving = ReceivingCalls(LIMITS, MAX_MESSAGE, {"inference": 3, "health": 1})
    receiving._check()  # while it is idle
    return receiving


Begin = Callable[..., list[Call]]


@pytest.fixture
def begin(receiving: ReceivingCalls, clock: Clock) -> Iterator[Begin]:
    """Begin one call for each client, the first one first."""
    begun: list[tuple[Call, threading.Thread]] = []

    def begin(*clients: str, kind: str = "inference") -> list[Call]:
        calls = []
        for client in clients:
            call, count = Call(client), len(receiving._calls)
            context = cast(grpc.ServicerContext, call)
            thread = threading.Thread(target=receiving.receive, args=(call.messages(), context, kind))
            thread.start()
            until(lambda: len(receiving._calls) > count)
            clock.now += 0.001
            begun.append((call, thread))
            calls.append(call)
        return calls

    yield begin
    for call, thread in begun:
        call.send("the end")
        thread.join(60)
        assert not thread.is_alive()
    assert not receiving._calls


def cancelled(calls: list[Call]) -> list[int]:
    return [number for number, call in enumerate(calls) if call.cancelled]


def test_a_message_is_returned_and_none_after_the_last(receiving: ReceivingCalls) -> None:
    context, messages = cast(grpc.ServicerContext, Call("a")), iter(["one"])
    assert receiving.receive(messages, context, "stream") == "one"
    assert receiving.receive(messages, context, "stream") is None
    assert not receiving._calls


def test_a_call_that_fails_is_forgotten(receiving: ReceivingCalls) -> None:
    class Broken:
        def __iter__(self) -> Broken:
            return self

        def __next__(self) -> str:
            raise ConnectionError

    with pytest.raises(ConnectionError):
        receiving.receive(Broken(), cast(grpc.ServicerContext, Call("a")), "stream")
    assert not receiving._calls


def test_a_message_has_its_time(receiving: ReceivingCalls, begin: Begin, clock: Clock) -> None:
    calls = begin("ipv4:1.1.1.1:5", "ipv4:2.2.2.2:6")
    clock.now += LIMITS.message_seconds - 1
    receiving._check()
    assert cancelled(calls) == []
    clock.now += 2
    receiving._check()
    assert cancelled(calls) == [0, 1]


def test_a_stream_may_be_silent(receiving: ReceivingCalls, begin: Begin, clock: Clock) -> None:
    calls = begin("ipv4:1.1.1.1:5", kind="stream")
    clock.now += 100 * LIMITS.message_seconds
    receiving._check()
    assert cancelled(calls) == []


def test_the_client_with_the_most_calls_loses_its_oldest(receiving: ReceivingCalls, begin: Begin, clock: Clock) -> None:
    one, other = "ipv4:1.1.1.1:", "ipv6:[::1]:"
    calls = begin(f"{other}1", f"{one}2", f"{one}3", f"{one}4", f"{other}5")
    clock.now += 2 * CHECK_SECONDS
    receiving._check()
    assert cancelled(calls) == [0, 1], "two too many: one's oldest, then either's"


def test_each_kind_has_its_own_limit(receiving: ReceivingCalls, begin: Begin, clock: Clock) -> None:
    calls = begin("a:1", "a:2") + begin("a:3", "a:4", kind="health") + begin("a:5", "a:6", "a:7", kind="stream")
    clock.now += 2 * CHECK_SECONDS
    receiving._check()
    assert cancelled(calls) == [2]


def test_calls_that_have_just_begun_are_never_cancelled(receiving: ReceivingCalls, begin: Begin, clock: Clock) -> None:
    calls = begin(*(f"a:{number}" for number in range(10)))
    clock.now += CHECK_SECONDS / 2
    receiving._check()
    assert cancelled(calls) == []


def test_memory_is_limited_by_what_the_process_took_since_it_was_idle(
    receiving: ReceivingCalls, begin: Begin, clock: Clock, memory: list[int]
) -> None:
    calls = begin("a:1", "b:2", "c:3") + begin("a:4", "a:5", "b:6", kind="stream")
    clock.now += 2 * CHECK_SECONDS
    memory[0] += LIMITS.pending_bytes
    receiving._check()
    assert cancelled(calls) == []
    memory[0] += 1
    receiving._check()
    assert cancelled(calls) == [0, 1], "down to four calls, which are affordable; streams last"


@pytest.mark.usefixtures("memory")
def test_the_memory_of_a_server_that_was_never_idle_is_its_own() -> None:
    receiving, calls = ReceivingCalls(LIMITS, MAX_MESSAGE, {}), [Call(f"a:{number}") for number in range(6)]
    threads = [
        threading.Thread(target=receiving.receive, args=(call.messages(), cast(grpc.ServicerContext, call), "stream"))
        for call in calls
    ]
    for thread in threads:
        thread.start()
    until(lambda: len(receiving._calls) == len(calls))
    time.sleep(2 * CHECK_SECONDS)
    receiving._check()
    assert cancelled(calls) == []
    for call, thread in zip(calls, threads, strict=True):
        call.send("the end")
        thread.join()


def test_streams_give_way_when_no_unary_call_is_left(
    receiving: ReceivingCalls, begin: Begin, clock: Clock, memory: list[int]
) -> None:
    calls = begin("a:1") + begin("b:2", "b:3", "b:4", "b:5", "c:6", kind="stream")
    clock.now += 2 * CHECK_SECONDS
    memory[0] += 10 * LIMITS.pending_bytes
    receiving._check()
    assert cancelled(calls) == [0, 1]


def test_the_process_knows_its_memory_where_the_system_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    if module._MEMORY.exists():
        assert module._resident_bytes() > 1_000_000
    monkeypatch.setattr(module, "_MEMORY", Path("/nowhere/statm"))
    assert module._resident_bytes() == 0
