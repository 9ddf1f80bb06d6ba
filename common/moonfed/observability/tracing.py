"""Spans of a round's work, exported over OTLP if the program was started with an endpoint; otherwise free.

`moonfed.observability.otlp` exports them; it is imported only then, and needs the extra `tracing`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from moonfed.command_line.programs import pip_install
from moonfed.errors import InvalidInput, MoonfedError, NotFound
from moonfed.observability.spans import NO_SPAN, Span, Tracer, Value
from moonfed.observability.trace_context import KEY, TraceContext, parse_traceparent

ENDPOINT_VARIABLE = "OTEL_EXPORTER_OTLP_ENDPOINT"
SCHEMES = ("http://", "https://")


_off = Tracer()
_tracer = _off
_current: ContextVar[Span] = ContextVar("current_span", default=NO_SPAN)


def tracer() -> Tracer:
    """Return this process's tracer."""
    return _tracer


def current() -> Span:
    """Return the span whose work is going on in this thread or task."""
    return _current.get()


def trace_metadata(assigned: str) -> tuple[tuple[str, str], ...]:
    """Return gRPC metadata with the current span, or with the assigned context if this process does not trace."""
    context = current().context or parse_traceparent(assigned)
    return ((KEY, context.traceparent),) if context else ()


def require_endpoint(endpoint: str) -> None:
    """Raise InvalidInput unless an endpoint is empty or a URL."""
    scheme = next((scheme for scheme in SCHEMES if endpoint.startswith(scheme)), None)
    if endpoint and (scheme is None or not endpoint.removeprefix(scheme).strip("/")):
        raise InvalidInput(field="otlp-endpoint", value=endpoint, allowed="a URL, such as http://localhost:4317")


@contextmanager
def exporting(endpoint: str, service: str) -> Iterator[None]:
    """Export the body's spans to a collector (OTLP over gRPC); does nothing without an endpoint.

    Raises InvalidInput for a malformed endpoint, NotFound if the extra is missing. A collector that is slow or absent
    delays nothing: spans wait in a bounded queue, from which the oldest are dropped.
    """
    global _tracer
    require_endpoint(endpoint)
    if not endpoint:
        yield
        return
    try:
        from moonfed.observability.otlp import OtlpTracer
    except ModuleNotFoundError as error:
        raise NotFound(
            f"the package {error.name!r}, which --otlp-endpoint and {ENDPOINT_VARIABLE} need, is not installed; "
            f"run {pip_install('tracing')}"
        ) from error
    _tracer = OtlpTracer(endpoint, service)
    try:
        yield
    finally:
        _tracer.close()
        _tracer = _off


@contextmanager
def span(name: str, parent: TraceContext | None = None, **attributes: Value) -> Iterator[Span]:
    """Trace the body as a child of `parent`, by default of the current span."""
    if not _tracer.on:
        yield NO_SPAN
        return
    started = _tracer.start(name, parent=parent or current().context, attributes=attributes)
    try:
        with within(started):
            yield started
    except BaseException as error:
        started.fail(error.slug if isinstance(error, MoonfedError) else type(error).__name__)
        raise
    finally:
        started.end()


@contextmanager
def within(work: Span) -> Iterator[None]:
    """Make a span the current one; the body's spans are its children, also in threads of asyncio."""
    token = _current.set(work)
    try:
        yield
    finally:
        _current.reset(token)
