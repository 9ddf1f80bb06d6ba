"""Export of spans over OTLP by OpenTelemetry's SDK, in a thread with a bounded queue."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Mapping
from contextvars import ContextVar

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import NonRecordingSpan, SpanContext, Status, StatusCode, TraceFlags, set_span_in_context
from opentelemetry.trace import Span as SdkSpan

from moonfed.observability.spans import NO_ATTRIBUTES, Span, Tracer, Value
from moonfed.observability.trace_context import TraceContext
from moonfed.version import RELEASE

QUEUE = 4096  # spans that wait for the collector
BATCH = 512  # spans of one export
EXPORT_SECONDS = 0.5  # between two exports
CALL_SECONDS = 5.0  # for a collector to answer
CLOSE_SECONDS = 2.0  # so long may the end of the process be delayed
PREFIX = "moonfed."
_log = logging.getLogger(__name__)


class OtlpTracer(Tracer):
    """A source of spans that are exported to one collector."""

    on = True

    def __init__(self, endpoint: str, service: str) -> None:
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # it logs every failure; we log their beginning
        self._ids = _Ids()
        resource = Resource.create({"service.name": service, "service.version": RELEASE})
        self._provider = TracerProvider(resource=resource, id_generator=self._ids, shutdown_on_exit=False)
        collector = OTLPSpanExporter(endpoint=endpoint, insecure=endpoint.startswith("http://"), timeout=CALL_SECONDS)
        self._provider.add_span_processor(_Queue(collector, endpoint))
        self._tracer = self._provider.get_tracer("moonfed", RELEASE)

    def start(
        self,
        name: str,
        *,
        parent: TraceContext | None = None,
        context: TraceContext | None = None,
        began: float | None = None,
        attributes: Mapping[str, Value] = NO_ATTRIBUTES,
    ) -> Span:
        """Start a span; see `Tracer`."""
        around = set_span_in_context(NonRecordingSpan(_sdk_context(parent)), Context()) if parent else Context()
        token = self._ids.chosen.set(context)
        try:
            started = self._tracer.start_span(
                name,
                context=around,
                attributes=_named(attributes),
                start_time=None if began is None else int(began * 1e9),
            )
        finally:
            self._ids.chosen.reset(token)
        return _OtlpSpan(started)

    def close(self) -> None:
        """Export what has ended, within moments."""
        self._provider.shutdown()


class _OtlpSpan(Span):
    """A span that is exported."""

    def __init__(self, span: SdkSpan) -> None:
        self._span = span
        context = span.get_span_context()
        self.context = TraceContext(f"{context.trace_id:032x}", f"{context.span_id:016x}")

    def set(self, **attributes: Value) -> None:
        self._span.set_attributes(_named(attributes))

    def event(self, name: str) -> None:
        self._span.add_event(name)

    def fail(self, kind: str) -> None:
        self._span.set_attribute("error.type", kind)
        self._span.set_status(Status(StatusCode.ERROR))

    def end(self) -> None:
        self._span.end()


class _Ids(RandomIdGenerator):
    """A generator of random ids, except for a span whose context was chosen."""

    def __init__(self) -> None:
        self.chosen: ContextVar[TraceContext | None] = ContextVar("chosen_ids", default=None)

    def generate_trace_id(self) -> int:
        chosen = self.chosen.get()
        return int(chosen.trace_id, 16) if chosen else super().generate_trace_id()

    def generate_span_id(self) -> int:
        chosen = self.chosen.get()
        return int(chosen.span_id, 16) if chosen else super().generate_span_id()


class _Queue(SpanProcessor):
    """Ended spans that wait for a thread, which exports them; the oldest are dropped if the collector is too slow.

    OpenTelemetry's BatchSpanProcessor starts a thread in every forked process, where a sandbox must start alone.
    """

    def __init__(self, collector: SpanExporter, endpoint: str) -> None:
        self._collector = collector
        self._endpoint = endpoint
        self._answers = True
        self._spans: deque[ReadableSpan] = deque(maxlen=QUEUE)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tracing", daemon=True)
        self._thread.start()

    def on_end(self, span: ReadableSpan) -> None:
        """Enqueue a span."""
        self._spans.append(span)

    def shutdown(self) -> None:
        """Export what has ended, as far as the collector answers soon."""
        self._closing.set()
        self._thread.join(CLOSE_SECONDS)
        self._collector.shutdown()

    def _run(self) -> None:
        while not self._closing.wait(EXPORT_SECONDS):
            self._export()
        self._export()

    def _export(self) -> None:
        """Export the spans of this moment; a batch that fails is dropped."""
        for _ in range(-(-len(self._spans) // BATCH)):
            batch = [self._spans.popleft() for _ in range(min(BATCH, len(self._spans)))]
            self._note(answers=self._collector.export(batch) is SpanExportResult.SUCCESS)

    def _note(self, *, answers: bool) -> None:
        """Log when the collector stops answering, and when it answers again."""
        if answers and not self._answers:
            _log.info("the trace collector at %s answers again", self._endpoint)
        elif self._answers and not answers:
            _log.warning("the trace collector at %s does not take spans; they are dropped", self._endpoint)
        self._answers = answers


def _named(attributes: Mapping[str, Value]) -> dict[str, Value]:
    return {f"{PREFIX}{name}": value for name, value in attributes.items()}


def _sdk_context(context: TraceContext) -> SpanContext:
    return SpanContext(
        int(context.trace_id, 16), int(context.span_id, 16), is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED)
    )
