"""Answers that their clients have not read: which of their calls are cancelled."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import grpc
import pytest

from moonfed.serving.grpc.sending import CALL_BYTES, UnreadAnswers
from moonfed.serving.requests.limits import RequestLimits
from tests.support.clock import Clock

SIZE = 100_000  # of an answer
LIMITS = RequestLimits(response_seconds=20.0, body_rate=SIZE, pending_bytes=4 * (SIZE + CALL_BYTES))


class Call:
    """A call whose client reads nothing until `read` is called."""

    def __init__(self, client: str, *, ended: bool = False) -> None:
        self.client, self.cancelled, self._ended = client, 0, ended
        self._callbacks: list[Callable[[], None]] = []

    @property
    def context(self) -> grpc.ServicerContext:
        return cast(grpc.ServicerContext, self)

    def peer(self) -> str:
        return self.client

    def cancel(self) -> None:
        self.cancelled += 1

    def add_callback(self, callback: Callable[[], None]) -> bool:
        self._callbacks.append(callback)
        return not self._ended

    def read(self) -> None:
        for callback in self._callbacks:
            callback()


@pytest.fixture
def unread(clock: Clock) -> UnreadAnswers:
    return UnreadAnswers(LIMITS)


def answered(unread: UnreadAnswers, *clients: str, size: int = SIZE) -> list[Call]:
    calls = [Call(client) for client in clients]
    for call in calls:
        assert unread.add(call.context, bytes(size)) == bytes(size)
    return calls


def cancelled(calls: list[Call]) -> list[int]:
    assert all(call.cancelled <= 1 for call in calls)
    return [number for number, call in enumerate(calls) if call.cancelled]


def test_an_answer_has_time_according_to_its_size(unread: UnreadAnswers, clock: Clock) -> None:
    calls = [*answered(unread, "a:1", size=0), *answered(unread, "a:2", size=2 * SIZE)]
    clock.now += 19.9
    unread._check()
    assert cancelled(calls) == []
    clock.now += 1.0
    unread._check()
    assert cancelled(calls) == [0]
    clock.now += 1.2
    unread._check()
    unread._check()
    assert cancelled(calls) == [0, 1]


def test_an_answer_that_was_read_does_not_count(unread: UnreadAnswers, clock: Clock) -> None:
    calls = answered(unread, "a:1", "a:2", "a:3")
    for call in calls:
        call.read()
    assert unread.add(Call("a:4", ended=True).context, bytes(SIZE))
    calls += answered(unread, "a:5", "a:6", "a:7", "a:8")
    assert cancelled(calls) == []
    assert unread._bytes == LIMITS.pending_bytes
    for call in calls:
        call.read()
    clock.now += 1000.0
    unread._check()
    assert cancelled(calls) == []
    assert (unread._bytes, unread._answers) == (0, {})


def test_the_client_with_the_most_bytes_loses_its_oldest(unread: UnreadAnswers) -> None:
    calls = answered(unread, "ipv4:1.1.1.1:1", "ipv6:[::1]:2", "ipv4:1.1.1.1:3", "ipv4:1.1.1.1:4")
    assert cancelled(calls) == []
    calls += answered(unread, "ipv6:[::1]:5")
    assert cancelled(calls) == [0, 2]
    assert unread._bytes == 3 * (SIZE + CALL_BYTES)


def test_small_answers_count_with_what_their_calls_take(unread: UnreadAnswers) -> None:
    calls = answered(unread, *["a:1"] * (LIMITS.pending_bytes // CALL_BYTES), size=0)
    assert cancelled(calls) == []
    answered(unread, "b:2", size=0)
    assert 0 < len(cancelled(calls)) < len(calls) // 5


def test_a_single_answer_may_have_any_size(unread: UnreadAnswers) -> None:
    assert cancelled(answered(unread, "a:1", size=100 * SIZE)) == []


def test_answers_of_a_stream_count_one_after_the_other(unread: UnreadAnswers, clock: Clock) -> None:
    call = Call("a:1")
    answers = unread.each(call.context, iter([b"one", b"two"]))
    assert next(answers) == b"one"
    clock.now += 19.0
    assert next(answers) == b"two"
    clock.now += 19.0
    unread._check()
    assert cancelled([call]) == []
    clock.now += 2.0
    unread._check()
    assert cancelled([call]) == [0]
    assert list(answers) == []
    assert (unread._bytes, unread._answers) == (0, {})


def test_a_stream_that_ends_in_between_is_forgotten(unread: UnreadAnswers) -> None:
    answers = unread.each(Call("a:1").context, iter([b"one", b"two"]))
    next(answers)
    del answers
    assert (unread._bytes, unread._answers) == (0, {})
