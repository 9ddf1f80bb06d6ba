"""Cancellation of a stream whose other side has stopped answering; keepalive only detects dead connections."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator
from typing import Protocol, TypeVar

TICK_SECONDS = 0.5  # between two checks that the call is still wanted
SETTLE_SECONDS = 5.0  # grace period for an answer in flight

Reply_co = TypeVar("Reply_co", covariant=True)


class Stream(Protocol[Reply_co]):
    """A gRPC call with a stream of replies."""

    def __iter__(self) -> Iterator[Reply_co]: ...

    def cancel(self) -> object:
        """End the call for both sides."""


def while_wanted(
    stream: Stream[Reply_co], wanted: Callable[[], bool], answering: Callable[[], bool] = lambda: True
) -> Generator[Reply_co, None, None]:
    """Yield the stream's replies; cancel it, which raises grpc.RpcError here, soon after `wanted` says no.

    `answering`: whether an answer may be on its way, which is then waited for a little longer.
    """
    over = threading.Event()
    threading.Thread(target=_watch, args=(stream, wanted, answering, over), name="stream", daemon=True).start()
    try:
        yield from stream
    finally:
        over.set()
        stream.cancel()  # if the consumer stopped; harmless after the end


def _watch(
    stream: Stream[object], wanted: Callable[[], bool], answering: Callable[[], bool], over: threading.Event
) -> None:
    while not over.wait(TICK_SECONDS):
        if not wanted():
            if not (answering() and over.wait(SETTLE_SECONDS)):
                stream.cancel()
            return
