"""Spans of a round's work, exported over OTLP if the program was started with an endpoint; otherwise free.

`moonfed.observability.otlp` exports them; it is imported only then, and needs the extra `tracing`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

from moonfed.command_line.programs import pip_install
from moonfed.errors import InvalidInput, MoonfedError, NotFound
from moonfed.observability.trace_context import KEY, TraceContext, parse_traceparent

Value = str | int | float | bool
NO_ATTRIBUTES: Mapping[str, Value] = {}
ENDPOINT_VARIABLE = "OTEL_EXPORTER_OTLP_ENDPOINT"
SCHEMES = ("http://", "https://")


class Span:
    """A part of a round's work. This one records nothing; `moonfed.observability.otlp` has the one that does."""

    context: TraceContext | None = None

    def set(self, **attributes: Value) -> None:
        """Set attributes, whose names get the prefix `moonfed.`."""

    def event(self, name: str) -> None:
        """Add an event of this moment."""

    def fail(self, kind: str) -> None:
        """Mark the span as failed; `kind`: such as an error's slug. Messages may name files and stay in the log."""

    def end(self) -> None:
        """End the span, which is exported then."""


NO_SPAN = Span()


class Tracer:
    """The source of spans. This one makes none, because tracing is off."""

    on = False

    def start(
        self,
        name: str,
        *,
        parent: TraceContext | None = None,
        context: TraceContext | None = None,
        began: float | None = None,
        attributes: Mapping[str, Value] = NO_ATTRIBUTES,
    ) -> Span:
        """Start a span, which the caller ends.

        `parent`: None for the root of a trace. `context`: the span's own, if it is derived. `began`: in seconds since
        the epoch; None: now.
        """
        return NO_SPAN

    def close(self) -> None:
        """Export what has ended, as far as the collector answers within moments."""


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
        raise InvalidInput(f"otlp-endpoint is {endpoint!r}; it must be a URL, such as http://localhost:4317")


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
            f"the package {error.name!r}, which --otlp-endpoint and {ENDPOINT_VARIABLE} need, is not installed; in "
            f"moonfed's source directory, run {pip_install('tracing')}"
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
