"""A patch for tests that are not about graph plans: bundles have none, because tracing one takes seconds."""

from __future__ import annotations

from moonfed.export import bundle_builder

TRACE = bundle_builder._trace


def trace_nothing(*_: object) -> str:
    """Stand in for the tracing of a plan; the bundle is as one without graphs."""
    return ""


bundle_builder._trace = trace_nothing  # type: ignore[assignment]
