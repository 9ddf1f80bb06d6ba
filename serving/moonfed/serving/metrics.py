"""Prometheus metrics under Triton's names, from what the models count."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from prometheus_client import CollectorRegistry, Metric, ProcessCollector, generate_latest
from prometheus_client.registry import Collector

from moonfed.serving.statistics import VersionStatistics

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
REASONS = ("REJECTED", "CANCELED", "BACKEND", "OTHER")
_COUNTERS: tuple[tuple[str, str, Callable[[VersionStatistics], float]], ...] = (
    ("request_success", "Requests that were answered, whatever their batch size", lambda s: s.success.count),
    ("count", "Samples that were answered", lambda s: s.inference_count),
    ("exec_count", "Runs of the model, each of one batch", lambda s: s.execution_count),
    ("request_duration_us", "Microseconds from requests to their answers", lambda s: s.success.ns // 1000),
    ("queue_duration_us", "Microseconds that requests waited to be run", lambda s: s.queue.ns // 1000),
    ("compute_input_duration_us", "Microseconds of preparing inputs", lambda s: s.compute_input.ns // 1000),
    ("compute_infer_duration_us", "Microseconds of running the model", lambda s: s.compute_infer.ns // 1000),
    ("compute_output_duration_us", "Microseconds of taking outputs apart", lambda s: s.compute_output.ns // 1000),
)
# prometheus_client writes OpenMetrics' names of counters, with an end that Triton's do not have.
_OPEN_METRICS_NAME = re.compile(rb"^(# (?:HELP|TYPE) nv_\w+)_total ", re.MULTILINE)


def exposition(statistics: Callable[[], Sequence[VersionStatistics]]) -> Callable[[], bytes]:
    """What writes the metrics as text, anew at each call."""
    registry = CollectorRegistry()
    registry.register(_Models(statistics))
    ProcessCollector(registry=registry)
    return lambda: _OPEN_METRICS_NAME.sub(rb"\1 ", generate_latest(registry))


class _Models(Collector):
    def __init__(self, statistics: Callable[[], Sequence[VersionStatistics]]) -> None:
        self._statistics = statistics

    def collect(self) -> Iterable[Metric]:
        found = self._statistics()
        for name, help_text, value in _COUNTERS:
            metric = Metric(f"nv_inference_{name}", help_text, "counter")
            for each in found:
                metric.add_sample(metric.name, _labels(each), value(each))
            yield metric
        failures = Metric("nv_inference_request_failure", "Requests that failed, by reason", "counter")
        pending = Metric("nv_inference_pending_request_count", "Requests that wait to be run, at present", "gauge")
        for each in found:
            for reason in REASONS:
                failures.add_sample(failures.name, {**_labels(each), "reason": reason}, each.failures.get(reason, 0))
            pending.add_sample(pending.name, _labels(each), each.pending)
        yield failures
        yield pending


def _labels(found: VersionStatistics) -> dict[str, str]:
    return {"model": found.name, "version": found.version}
