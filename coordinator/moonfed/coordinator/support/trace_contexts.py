"""The contexts of a round's spans, which every coordinator derives alike, and so does one that was restarted."""

from __future__ import annotations

from moonfed.coordinator.records import AttemptId, RunRecord
from moonfed.observability.trace_context import TraceContext, derived_child, derived_context, parse_traceparent
from moonfed.observability.tracing import tracer


def round_context(record: RunRecord, attempt: AttemptId) -> TraceContext:
    """Return the root of an attempt's trace; a later run of the same name has other traces."""
    return derived_context(record.run, record.created, attempt.round, attempt.attempt)


def assignment_context(record: RunRecord, attempt: AttemptId, device: str) -> TraceContext:
    """Return the context of a device's assignment, to which the device's own spans belong."""
    return derived_child(round_context(record, attempt), device)


def assignment_traceparent(record: RunRecord, attempt: AttemptId, device: str) -> str:
    """Return the context that a device is sent with its assignment; empty while tracing is off."""
    return assignment_context(record, attempt, device).traceparent if tracer().on else ""


def sender_context(record: RunRecord, attempt: AttemptId, device: str, traceparent: str) -> TraceContext:
    """Return the device's context that came with a call; its assignment's if that is of another trace, or missing."""
    assigned, sent = assignment_context(record, attempt, device), parse_traceparent(traceparent)
    return sent if sent and sent.trace_id == assigned.trace_id else assigned
