"""A collector of traces: OpenTelemetry's own service on a loopback port, which keeps the spans that it is sent."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.trace.v1 import trace_pb2

PATIENCE = 120.0  # seconds; spans arrive about a second after their end
FAILED = trace_pb2.Status.STATUS_CODE_ERROR


@dataclass(frozen=True)
class Received:
    """One span, and the program that made it."""

    service: str
    name: str
    trace: str
    id: str
    parent: str  # empty: none
    began: float  # seconds since the epoch
    ended: float
    attributes: dict[str, Any]  # without their prefix
    events: tuple[str, ...]
    failed: bool


@dataclass
class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    """The received spans."""

    address: str = ""
    spans: list[Received] = field(default_factory=list)

    def Export(
        self, request: trace_service_pb2.ExportTraceServiceRequest, context: grpc.ServicerContext
    ) -> trace_service_pb2.ExportTraceServiceResponse:
        for part in request.resource_spans:
            (service,) = (one.value.string_value for one in part.resource.attributes if one.key == "service.name")
            self.spans += [_read(service, span) for scope in part.scope_spans for span in scope.spans]
        return trace_service_pb2.ExportTraceServiceResponse()

    def until(self, condition: Callable[[list[Received]], bool]) -> list[Received]:
        """Wait until the spans meet a condition."""
        deadline = time.monotonic() + PATIENCE
        while not condition(spans := list(self.spans)):
            assert time.monotonic() < deadline, [(span.name, span.attributes) for span in spans]
            time.sleep(0.05)
        return spans

    def until_named(self, *names: str) -> list[Received]:
        """Wait until there is a span of each name."""
        return self.until(lambda spans: {*names} <= {span.name for span in spans})


@contextmanager
def running_collector(port: int = 0) -> Iterator[Collector]:
    """Serve a collector on a port; 0: any free one."""
    collector, server = Collector(), grpc.server(ThreadPoolExecutor(2))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(collector, server)  # type: ignore[no-untyped-call]
    collector.address = f"http://127.0.0.1:{server.add_insecure_port(f'127.0.0.1:{port}')}"
    server.start()
    try:
        yield collector
    finally:
        server.stop(None).wait()


@contextmanager
def silent_collector() -> Iterator[str]:
    """Return the address of a collector that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


def children(spans: list[Received], parent: Received) -> list[Received]:
    """Return the spans within a span."""
    return [span for span in spans if (span.trace, span.parent) == (parent.trace, parent.id)]


def _read(service: str, span: trace_pb2.Span) -> Received:
    found = {one.key.removeprefix("moonfed."): one.value for one in span.attributes}
    return Received(
        service=service,
        name=span.name,
        trace=span.trace_id.hex(),
        id=span.span_id.hex(),
        parent=span.parent_span_id.hex(),
        began=span.start_time_unix_nano / 1e9,
        ended=span.end_time_unix_nano / 1e9,
        attributes={name: getattr(value, value.WhichOneof("value") or "") for name, value in found.items()},
        events=tuple(event.name for event in span.events),
        failed=span.status.code == FAILED,
    )
