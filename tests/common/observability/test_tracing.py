"""Tracing is off and free by default; contexts are the W3C's, and derived ones agree between programs."""

from __future__ import annotations

import sys

import pytest

from moonfed.errors import InvalidInput, NotFound
from moonfed.observability import tracing
from moonfed.observability.spans import NO_SPAN
from moonfed.observability.trace_context import TraceContext, derived_child, derived_context, parse_traceparent
from moonfed.observability.tracing import exporting, require_endpoint, span, trace_metadata, tracer
from tests.support.refusals import refused

CONTEXT = TraceContext("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331")  # the W3C's example
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_contexts_are_written_and_read_as_the_w3c_says() -> None:
    assert CONTEXT.traceparent == TRACEPARENT
    assert parse_traceparent(TRACEPARENT) == CONTEXT


@pytest.mark.parametrize(
    "text",
    [
        *("", "x", TRACEPARENT[:-1], TRACEPARENT + "0", TRACEPARENT.upper()),
        *(f"00-{'0' * 32}-{'1' * 16}-01", f"00-{'1' * 32}-{'0' * 16}-01"),
    ],
)
def test_an_invalid_context_is_none(text: str) -> None:
    assert parse_traceparent(text) is None


def test_derived_contexts_agree_and_differ() -> None:
    root = derived_context("digits", 1795419360.125, 3, 1)
    assert root == derived_context("digits", 1795419360.125, 3, 1)
    assert parse_traceparent(root.traceparent) == root
    others = [derived_context("digits", 1795419360.125, 3, 2), derived_context("digits", 1795419361.0, 3, 1)]
    assert len({root.trace_id, *(other.trace_id for other in others)}) == 3
    child = derived_child(root, "cam-1")
    assert child.trace_id == root.trace_id
    assert len({root.span_id, child.span_id, derived_child(root, "cam-2").span_id}) == 3


def test_without_an_endpoint_nothing_is_recorded() -> None:
    with exporting("", "moonfed-test"), span("round", round=1) as found:
        assert not tracer().on
        assert found is tracing.current() is tracer().start("other") is NO_SPAN
        found.set(outcome="committed")
        found.event("lost")
        found.fail("late-update")
        found.end()
    assert trace_metadata("") == trace_metadata("x\n") == ()
    assert trace_metadata(TRACEPARENT) == (("traceparent", TRACEPARENT),), "what was assigned is passed on"


@pytest.mark.parametrize("endpoint", ["localhost:4317", "ftp://localhost", "http://", "https:///"])
def test_an_endpoint_is_a_url(endpoint: str) -> None:
    with refused(InvalidInput, "otlp-endpoint"):
        require_endpoint(endpoint)


def test_a_missing_extra_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "moonfed.observability.otlp", raising=False)
    for name in [name for name in sys.modules if name.startswith("opentelemetry")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)  # as if it were not installed
    sentence = (
        r"'opentelemetry.*', which --otlp-endpoint and .* need, is not installed; .* pip install 'moonfed\[tracing\]'"
    )
    with pytest.raises(NotFound, match=sentence), exporting("http://localhost:4317", "moonfed-test"):
        pass
