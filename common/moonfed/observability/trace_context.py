"""Contexts of traces: the W3C's traceparent, and ids that every coordinator derives alike.

Derived ids let replicas, and a coordinator after a restart, name a round's span without asking each other.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

KEY = "traceparent"  # of gRPC's metadata; https://www.w3.org/TR/trace-context
_FORM = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")
TRACE_DIGITS, SPAN_DIGITS = 32, 16


@dataclass(frozen=True, slots=True)
class TraceContext:
    """A span's place: its trace and its own id, in hexadecimal digits."""

    trace_id: str
    span_id: str

    @property
    def traceparent(self) -> str:
        """The context for a message."""
        return f"00-{self.trace_id}-{self.span_id}-01"


def parse_traceparent(text: str) -> TraceContext | None:
    """Return the context of a message; None if there is none, or if it is invalid."""
    found = _FORM.fullmatch(text)
    if found is None or not found[1].strip("0") or not found[2].strip("0"):
        return None
    return TraceContext(found[1], found[2])


def derived_context(*names: object) -> TraceContext:
    """Return the context of the root of the trace that these names identify."""
    digest = hashlib.sha256("\0".join(map(str, names)).encode()).hexdigest()
    return TraceContext(digest[:TRACE_DIGITS], digest[TRACE_DIGITS : TRACE_DIGITS + SPAN_DIGITS])


def derived_child(parent: TraceContext, *names: object) -> TraceContext:
    """Return the context of the span in the same trace that these names identify."""
    return TraceContext(parent.trace_id, derived_context(parent.trace_id, *names).span_id)
