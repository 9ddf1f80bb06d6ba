"""Prometheus metrics under Triton's names, from the models' statistics."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from prometheus_client import CollectorRegistry, Metric, ProcessCollector, generate_latest
from prometheus_client.registry import Collector

from moonfed.serving.models.statistics import VersionStatistics

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
REASONS = ("REJECTED", "CANCELED", "BACKEND", "OTHER")
_BATCHED = "a batch's time counts for each request"
_COUNTERS: tuple[tuple[str, str, Callable[[VersionStatistics], float]], ...] = (
    ("request_success", "Successful requests, whatever their batch size", lambda s: s.success.count),
    ("count", "Samples in successful requests", lambda s: s.inference_count),
    ("exec_count", "Executions of the model, one per batch", lambda s: s.execution_count),
    ("request_duration_us", "Microseconds from request to response", lambda s: s.success.ns // 1000),
    ("queue_duration_us", "Microseconds that requests waited in the queue", lambda s: s.queue.ns // 1000),
    ("compute_input_duration_us", f"Microseconds preparing inputs; {_BATCHED}", lambda s: s.compute_input.ns // 1000),
    ("compute_infer_duration_us", f"Microseconds running the model; {_BATCHED}", lambda s: s.compute_infer.ns // 1000),
    (
        "compute_output_duration_us",
        f"Microseconds splitting outputs; {_BATCHED}",
        lambda s: s.compute_output.ns // 1000,
    ),
)
# prometheus_client appends OpenMetrics' suffix to the names of counters, which Triton does not.
_OPEN_METRICS_NAME = re.compile(rb"^(# (?:HELP|TYPE) nv_\w+)_total ", re.MULTILINE)


def exposition(statistics: Callable[[], Sequence[VersionStatistics]]) -> Callable[[], bytes]:
    """Return a function that renders the current metrics as text."""
    registry = CollectorRegistry()
    registry.register(_ModelCollector(statistics))
    ProcessCollector(registry=registry)
    return lambda: _OPEN_METRICS_NAME.sub(rb"\1 ", generate_latest(registry))


class _ModelCollector(Collector):
    def __init__(self, statistics: Callable[[], Sequence[VersionStatistics]]) -> None:
        self._statistics = statistics

    def collect(self) -> Iterable[Metric]:
        versions = self._statistics()
        for name, help_text, value in _COUNTERS:
            metric = Metric(f"nv_inference_{name}", help_text, "counter")
            for version in versions:
                metric.add_sample(metric.name, _labels(version), value(version))
            yield metric
        failures = Metric("nv_inference_request_failure", "Failed requests by reason", "counter")
        pending = Metric("nv_inference_pending_request_count", "Requests in the queue", "gauge")
        for version in versions:
            for reason in REASONS:
                labels = {**_labels(version), "reason": reason}
                failures.add_sample(failures.name, labels, version.failures.get(reason, 0))
            pending.add_sample(pending.name, _labels(version), version.pending)
        yield failures
        yield pending


def _labels(version: VersionStatistics) -> dict[str, str]:
    return {"model": version.name, "version": version.version}
