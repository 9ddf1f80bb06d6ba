"""The interface of spans and their source. These record nothing; `moonfed.observability.otlp` has those that do."""

from __future__ import annotations

from collections.abc import Mapping

from moonfed.observability.trace_context import TraceContext

Value = str | int | float | bool
NO_ATTRIBUTES: Mapping[str, Value] = {}


class Span:
    """A part of a round's work."""

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
