"""Spans reach a real collector; one that is slow or absent delays nothing."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
import time
from collections.abc import Callable

import pytest

from moonfed.errors import TooLate
from moonfed.observability import tracing
from moonfed.observability.otlp import QUEUE
from moonfed.observability.trace_context import TraceContext
from moonfed.observability.tracing import exporting, span, tracer
from tests.support.trace_collector import PATIENCE, children, running_collector, silent_collector

CONTEXT = TraceContext("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331")


def until(condition: Callable[[], bool], meanwhile: Callable[[], None]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        meanwhile()
        time.sleep(0.05)


def end_span() -> None:
    with span("round"):
        pass


def reduce() -> None:
    with span("reduction", updates=2):
        pass


def fail() -> None:
    with span("upload"):
        raise TooLate("the round of cam-1 is over")


def test_spans_reach_the_collector_as_a_tree() -> None:
    with running_collector() as collector:
        with exporting(collector.address, "moonfed-test"):
            root = tracer().start("round", context=CONTEXT, began=1000.5, attributes={"round": 3})
            with tracing.within(root):
                asyncio.run(asyncio.to_thread(reduce))
                assert dict(tracing.trace_metadata("")) == {"traceparent": CONTEXT.traceparent}
                with pytest.raises(TooLate):
                    fail()
            with span("device round", CONTEXT, device="cam-1") as found:
                found.event("lost")
            root.set(outcome="committed")
            root.end()
            with span("round"):
                pass
        spans = collector.until(lambda spans: len(spans) == 5)
    assert {one.service for one in spans} == {"moonfed-test"}
    named = {one.name: one for one in spans if one.parent}
    (first,) = (one for one in spans if not one.parent and one.attributes)
    (other,) = (one for one in spans if not one.parent and not one.attributes)
    assert (first.trace, first.id, first.began) == (CONTEXT.trace_id, CONTEXT.span_id, 1000.5)
    assert first.attributes == {"round": 3, "outcome": "committed"}
    assert {one.name for one in children(spans, first)} == {"reduction", "upload", "device round"}
    assert named["reduction"].attributes == {"updates": 2}
    assert (named["upload"].failed, named["upload"].attributes) == (True, {"error.type": "late-update"}), "no message"
    assert named["device round"].events == ("lost",)
    assert other.trace != first.trace


def test_a_collector_that_never_answers_delays_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with silent_collector() as address, caplog.at_level(logging.INFO):
        with exporting(address, "moonfed-test"):
            for number in range(2 * QUEUE):  # more than the queue holds
                with span("round", round=number):
                    pass
        assert not tracer().on, "it was closed, although nothing was delivered"
    assert len(caplog.messages) <= 1, "and the log is not flooded"


@pytest.mark.slow
def test_an_absent_collector_is_logged_once_and_so_is_its_return(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    address = f"http://127.0.0.1:{port}"

    def own() -> list[str]:
        return [message for message in caplog.messages if address in message]  # others may still be closing

    # Other tests may have set another level for the programs' logs.
    with caplog.at_level(logging.INFO, "moonfed.observability.otlp"), exporting(address, "moonfed-test"):
        until(lambda: bool(own()), meanwhile=end_span)
        end_span()
        with running_collector(port) as collector:
            until(lambda: len(own()) > 1, meanwhile=end_span)
            assert collector.spans
            assert own() == [
                f"the trace collector at {address} does not take spans; they are dropped",
                f"the trace collector at {address} answers again",
            ]


def test_its_thread_ends_with_it() -> None:
    before = set(threading.enumerate())
    with running_collector() as collector, exporting(collector.address, "moonfed-test"), span("round"):
        pass
    assert not [thread for thread in set(threading.enumerate()) - before if thread.name == "tracing"]
