"""Cancellation of a stream whose other side has stopped answering; keepalive only detects dead connections."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator
from typing import Protocol, TypeVar

TICK_SECONDS = 0.5  # between two checks that the call is still should_continue
SETTLE_SECONDS = 5.0  # grace period for an answer in flight

Reply_co = TypeVar("Reply_co", covariant=True)


class Stream(Protocol[Reply_co]):
    """A gRPC call with a stream of replies."""

    def __iter__(self) -> Iterator[Reply_co]: ...

    def cancel(self) -> object:
        """End the call for both sides."""


def replies_while(
    stream: Stream[Reply_co], should_continue: Callable[[], bool], reply_pending: Callable[[], bool] = lambda: True
) -> Generator[Reply_co, None, None]:
    """Yield the stream's replies; cancel it soon after `should_continue` returns False, which raises grpc.RpcError.

    `reply_pending`: whether a reply may be in flight, which gets a grace period.
    """
    over = threading.Event()
    threading.Thread(
        target=_watch, args=(stream, should_continue, reply_pending, over), name="stream", daemon=True
    ).start()
    try:
        yield from stream
    finally:
        over.set()
        stream.cancel()  # if the consumer stopped; harmless after the end


def _watch(
    stream: Stream[object],
    should_continue: Callable[[], bool],
    reply_pending: Callable[[], bool],
    over: threading.Event,
) -> None:
    while not over.wait(TICK_SECONDS):
        if not should_continue():
            if not (reply_pending() and over.wait(SETTLE_SECONDS)):
                stream.cancel()
            return
