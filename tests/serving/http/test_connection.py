"""One connection's bounds, by a clock and a transport that the test controls; test_attacks.py has a real server."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, cast

import pytest
import uvicorn
from uvicorn.server import ServerState

from moonfed.serving.http.connection import LINGER_SECONDS, BoundedProtocol
from moonfed.serving.http.connections import Connections
from moonfed.serving.requests.limits import RequestLimits

LIMITS = RequestLimits(
    header_seconds=10.0,
    header_bytes=200,
    header_count=4,
    pipelined_requests=2,
    body_seconds=20.0,
    body_rate=100,
    response_seconds=30.0,
    pending_bytes=5000,
)
MAX_BODY = 3000
REQUEST = b"POST /infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"


class Timer:
    def __init__(self, due: float, call: Callable[[], object]) -> None:
        self.due, self.call, self.cancelled = due, call, False

    def cancel(self) -> None:
        self.cancelled = True


class Task:
    def add_done_callback(self, _: object) -> None: ...


class Loop:
    """An event loop whose time the test moves, and which starts no application."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[Timer] = []

    def time(self) -> float:
        return self.now

    def call_later(self, seconds: float, call: Callable[..., object], *arguments: object) -> Timer:
        self.timers.append(Timer(self.now + seconds, lambda: call(*arguments)))
        return self.timers[-1]

    def create_task(self, coroutine: Coroutine[Any, Any, object], **_: object) -> Task:
        coroutine.close()
        return Task()

    def pass_time(self, seconds: float) -> None:
        end = self.now + seconds
        while due := [timer for timer in self.timers if timer.due <= end and not timer.cancelled]:
            timer = min(due, key=lambda each: each.due)
            self.timers.remove(timer)
            self.now = timer.due
            timer.call()
        self.now = end


class Transport:
    """A transport whose peer reads everything, unless `unread` says otherwise."""

    def __init__(self) -> None:
        self.written, self.closing, self.aborted, self.unread = b"", False, False, 0

    def write(self, content: bytes) -> None:
        self.written += content

    def close(self) -> None:
        self.closing = True

    def abort(self) -> None:
        self.aborted = True

    def is_closing(self) -> bool:
        return self.closing

    def get_write_buffer_size(self) -> int:
        return self.unread

    def get_extra_info(self, _: str) -> None:
        return None

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    @property
    def status(self) -> int:
        """The status of the last answer; 0 if there was none."""
        return int(self.written.rpartition(b"HTTP/1.1 ")[2][:3] or 0)


class Client:
    """One connection."""

    def __init__(self, loop: Loop, shared: Connections[BoundedProtocol]) -> None:
        self.transport = Transport()
        config = uvicorn.Config(application, lifespan="off", ws="none", log_config=None, access_log=False)
        self.protocol = BoundedProtocol(config, ServerState(), {}, cast(asyncio.AbstractEventLoop, loop), shared=shared)
        self.protocol.connection_made(self.transport)

    def send(self, content: bytes) -> None:
        self.protocol.data_received(content)

    def answer(self) -> None:
        """Complete the answer that is due."""
        self.protocol.cycle.response_complete = True
        self.protocol.on_response_complete()

    @property
    def closed_with(self) -> int | None:
        """The status with which the connection was closed; None if it is open."""
        return self.transport.status if self.transport.closing else None


async def application(scope: object, receive: object, send: object) -> None:
    """Answer nothing: the test completes answers."""


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def shared() -> Connections[BoundedProtocol]:
    return Connections(LIMITS, limit=3, max_body_bytes=MAX_BODY)


@pytest.fixture
def connect(loop: Loop, shared: Connections[BoundedProtocol]) -> Callable[[], Client]:
    return lambda: Client(loop, shared)


@pytest.fixture
def client(connect: Callable[[], Client]) -> Client:
    return connect()


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET /" + b"x" * 300, 431),
        (b"GET / HTTP/1.1\r\nHost: " + b"x" * 300, 431),
        (b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 6, 431),
        (b"GET / HTTP/1.1\r\nHost: x\r\n" + b"a" * 150 + b": 1\r\nb: " + b"2" * 60 + b"\r\nc: d", 431),
        (b"GET /" + b"x" * 120 + b" HTTP/1.1\r\nHost: " + b"x" * 100 + b"\r\n\r\n", 431),
        (REQUEST % (1 << 40) + b"x" * (4 * MAX_BODY + (1 << 20) + 1), 413),
    ],
    ids=["no HTTP", "path", "header", "headers", "headers together", "path and header", "body"],
)
def test_what_is_too_large_or_no_http_is_rejected(client: Client, content: bytes, status: int) -> None:
    size = max(64, len(content) // 8)
    for start in range(0, len(content), size):
        client.send(content[start : start + size])
    assert client.closed_with == status
    written = client.transport.written
    client.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert client.transport.written == written, "nothing is parsed after a rejection"


def test_the_headers_of_each_request_are_counted_anew(client: Client) -> None:
    for _ in range(10):
        client.send(b"GET / HTTP/1.1\r\nHost: x\r\na: b\r\nc: " + b"d" * 100 + b"\r\n\r\n")
        client.answer()
    assert client.closed_with is None


def test_pipelined_requests_are_bounded(client: Client) -> None:
    request = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
    client.send(request * 3)  # one is answered, two wait
    assert client.closed_with is None
    client.send(request)
    assert client.closed_with == 429


@pytest.mark.parametrize("content", [b"", b"GET / HTTP/1.1\r\nHost:"])
def test_headers_must_arrive_in_time(content: bytes, client: Client, loop: Loop) -> None:
    client.send(content)
    loop.pass_time(LIMITS.header_seconds - 1)
    client.send(content and b"x")
    assert client.closed_with is None
    loop.pass_time(2)
    assert client.closed_with == (408 if content else 0), "an idle connection is closed without an answer"


def test_a_body_must_arrive_at_a_rate(client: Client, loop: Loop) -> None:
    client.send(REQUEST % 2500)
    loop.pass_time(LIMITS.body_seconds - 1)
    client.send(b"x" * 1000)  # ten more seconds at 100 bytes a second
    loop.pass_time(10)
    assert client.closed_with is None
    loop.pass_time(2)
    assert client.closed_with == 408


def test_an_answer_that_takes_long_has_no_deadline(client: Client, loop: Loop) -> None:
    client.send(REQUEST % 4 + b"body")
    loop.pass_time(10_000)
    assert client.closed_with is None
    client.answer()
    loop.pass_time(100)
    assert client.closed_with == 0, "an idle connection is closed"


def test_the_rest_of_a_request_that_was_answered_early_is_read_for_a_while(client: Client, loop: Loop) -> None:
    client.send(REQUEST % 2500 + b"half")
    client.answer()
    loop.pass_time(LINGER_SECONDS / 3)
    client.send(b"x" * 100)
    loop.pass_time(LINGER_SECONDS / 2)
    assert client.closed_with is None
    loop.pass_time(2)
    assert client.closed_with == 0


def test_a_client_that_does_not_read_is_cut_off_unless_it_makes_progress(client: Client, loop: Loop) -> None:
    client.transport.unread = 1000
    client.send(b"nonsense\r\n\r\n")
    loop.pass_time(LINGER_SECONDS - 1)
    client.transport.unread = 500
    loop.pass_time(2)
    assert client.closed_with == 400
    assert not client.transport.aborted
    loop.pass_time(LINGER_SECONDS + 1)
    assert client.transport.aborted


def test_a_response_must_be_read_at_a_rate(client: Client, loop: Loop) -> None:
    client.send(REQUEST % 4 + b"body")
    client.transport.unread = 1000
    client.protocol.pause_writing()
    for second in range(int(LIMITS.response_seconds + 1000 / LIMITS.body_rate) - 1):
        client.transport.unread = 1000 - second
        loop.pass_time(1)
    assert not client.transport.aborted
    loop.pass_time(2)
    assert client.transport.aborted


def test_a_response_that_is_not_read_at_all_is_aborted_early(client: Client, loop: Loop) -> None:
    client.send(REQUEST % 4 + b"body")
    client.transport.unread = 1 << 30
    client.protocol.pause_writing()
    loop.pass_time(LIMITS.response_seconds - 1)
    assert not client.transport.aborted
    loop.pass_time(2)
    assert client.transport.aborted


def test_a_response_that_was_read_has_no_deadline(client: Client, loop: Loop) -> None:
    client.send(REQUEST % 4 + b"body")
    for _ in range(3):
        client.transport.unread = 1000
        client.protocol.pause_writing()
        loop.pass_time(20)
        client.transport.unread = 0
        client.protocol.resume_writing()
        loop.pass_time(1000)
    assert not client.transport.aborted


def test_the_largest_unfinished_body_gives_way(connect: Callable[[], Client]) -> None:
    large, small = connect(), connect()
    large.send(REQUEST % 2900 + b"x" * 2800)
    small.send(REQUEST % 2900 + b"x" * 2100)
    assert (large.closed_with, small.closed_with) == (None, None)
    small.send(b"x" * 200)
    assert (large.closed_with, small.closed_with) == (503, None)


def test_answered_bodies_hold_nothing(connect: Callable[[], Client]) -> None:
    clients = [connect() for _ in range(3)]
    for _ in range(5):
        for client in clients:
            client.send(REQUEST % 2900 + b"x" * 2900)
            client.answer()
    assert [client.closed_with for client in clients] == [None] * 3


def test_the_connection_that_waits_longest_gives_way_to_a_new_one(connect: Callable[[], Client]) -> None:
    busy, idle, other = connect(), connect(), connect()
    busy.send(REQUEST % 4 + b"body")
    connect()
    assert [client.closed_with for client in (busy, idle, other)] == [None, 503, None]


def test_a_closed_connection_has_no_timer(client: Client, loop: Loop) -> None:
    client.send(REQUEST % 10)
    client.transport.unread = 1000
    client.protocol.pause_writing()
    client.protocol.connection_lost(ConnectionResetError())
    assert all(timer.cancelled for timer in loop.timers)
    loop.pass_time(1000)
    assert (client.transport.written, client.transport.aborted) == (b"", False)


@pytest.fixture
def no_collection() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize(
    "rest", [b"", b"nonsense\r\n\r\n", b"GET / HTTP/1.1\r\nHo", b"GET / HTTP/1.1\r\nHost : x\r\n\r\n"]
)
@pytest.mark.usefixtures("no_collection")
def test_a_lost_connection_keeps_no_request_until_garbage_is_collected(client: Client, rest: bytes) -> None:
    client.send(REQUEST % 4 + b"body" + REQUEST % 4 + b"next" + rest)
    cycle = weakref.ref(client.protocol.cycle)
    client.protocol.connection_lost(None)
    assert cycle() is None


@pytest.mark.parametrize(
    "rest", [b"nonsense\r\n\r\n", b"GET / HTTP/1.1\r\nHost : x\r\n\r\n", b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 6]
)
def test_a_rejected_connection_frees_its_bodies_before_its_client_reads_the_reason(client: Client, rest: bytes) -> None:
    client.send(REQUEST % 4 + b"body" + REQUEST % 2500 + b"x" * 2500)
    cycle = client.protocol.cycle
    client.transport.unread = 1000
    client.send(rest)
    assert client.transport.status in (400, 431)
    assert (bytes(cycle.body), cycle.disconnected, len(client.protocol.pipeline)) == (b"", True, 0)
