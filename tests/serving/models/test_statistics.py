"""Statistics of requests, with a clock controlled by the test."""

from __future__ import annotations

import itertools
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
from google.protobuf import json_format, text_format
from tritonclient.grpc import service_pb2

from moonfed.errors import InvalidInput
from moonfed.serving.grpc import metadata as grpc_metadata
from moonfed.serving.http import metadata as http_metadata
from moonfed.serving.models.manager import ModelManager
from moonfed.serving.models.statistics import (
    BatchStatistics,
    Duration,
    ExecutedRequest,
    StatisticsRecorder,
    VersionStatistics,
)
from tests.support.gates import result
from tests.support.model_repositories import NOT_BATCHING, ask, batch_of, linear, serve, write_model

HOUR_US = 3_600_000_000
TICK = 1000  # nanoseconds that pass each time somebody looks at the clock


def durations(count: int, *ns: int) -> tuple[Duration, ...]:
    return tuple(Duration(count=count, ns=each) for each in ns)


def test_a_batch_counts_once_and_its_durations_count_per_request() -> None:
    counter = StatisticsRecorder()
    counter.record_execution([ExecutedRequest(2, 100, 150), ExecutedRequest(3, 120, 150)], (150, 160, 260, 300))
    counter.record_execution([ExecutedRequest(5, 400, 410)], (410, 411, 431, 437))
    counter.record_execution([ExecutedRequest(1, 500, 500)], (500, 503, 504, 509))
    counter.record_failure("REJECTED", 7)
    counter.record_failure("OTHER", 8)
    counter.record_failure("REJECTED", 9)
    found = counter.snapshot("cnn", "3", 4)
    assert (found.name, found.version, found.pending) == ("cnn", "3", 4)
    assert (found.inference_count, found.execution_count) == (11, 3)
    assert found.success == Duration(count=4, ns=200 + 180 + 37 + 9)
    assert found.queue == Duration(count=4, ns=50 + 30 + 10)
    compute = (found.compute_input, found.compute_infer, found.compute_output)
    assert compute == durations(4, 2 * 10 + 1 + 3, 2 * 100 + 20 + 1, 2 * 40 + 6 + 5)
    assert (found.fail, found.failures) == (Duration(count=3, ns=24), {"REJECTED": 2, "OTHER": 1})
    for each, size, expected in zip(
        found.batches, (1, 5), (durations(1, 3, 1, 5), durations(2, 11, 120, 46)), strict=True
    ):
        assert each == BatchStatistics(
            batch_size=size, compute_input=expected[0], compute_infer=expected[1], compute_output=expected[2]
        )


TOLD = """
model_stats {
  name: "cnn" version: "3" last_inference: 1 inference_count: 2 execution_count: 3
  inference_stats {
    success { count: 4 ns: 5 } fail { count: 6 ns: 7 } queue { count: 8 ns: 9 }
    compute_input { count: 10 ns: 11 } compute_infer { count: 12 ns: 13 } compute_output { count: 14 ns: 15 }
    cache_hit { } cache_miss { }
  }
  batch_stats {
    batch_size: 16
    compute_input { count: 17 ns: 18 } compute_infer { count: 19 ns: 20 } compute_output { count: 21 ns: 22 }
  }
}
"""


def test_both_protocols_report_all_statistics() -> None:
    batch = BatchStatistics(
        batch_size=16,
        compute_input=Duration(count=17, ns=18),
        compute_infer=Duration(count=19, ns=20),
        compute_output=Duration(count=21, ns=22),
    )
    found = VersionStatistics(
        name="cnn",
        version="3",
        last_inference_ms=1,
        inference_count=2,
        execution_count=3,
        success=Duration(count=4, ns=5),
        fail=Duration(count=6, ns=7),
        queue=Duration(count=8, ns=9),
        compute_input=Duration(count=10, ns=11),
        compute_infer=Duration(count=12, ns=13),
        compute_output=Duration(count=14, ns=15),
        batches=(batch,),
    )
    expected = text_format.Parse(TOLD, service_pb2.ModelStatisticsResponse())
    assert grpc_metadata.model_statistics([found]) == expected
    by_http = http_metadata.model_statistics([found])
    assert json_format.ParseDict(by_http, service_pb2.ModelStatisticsResponse()) == expected


def served(repository: Path, monkeypatch: pytest.MonkeyPatch, batching: str = "") -> ModelManager:
    """Serve the linear model with a clock that ticks once per reading."""
    write_model(repository, "linear", 1, linear(), NOT_BATCHING + batching)
    models = serve(repository)
    looks = itertools.count(time.monotonic_ns(), TICK)
    monkeypatch.setattr("moonfed.serving.models.version._clock", lambda: next(looks))
    return models


def test_a_request_alone_is_timed_from_when_it_came(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    models = served(tmp_path, monkeypatch)
    monkeypatch.setattr(
        "moonfed.serving.models.statistics.time", SimpleNamespace(time_ns=lambda: 1_700_000_000_123_999_999)
    )
    assert models.statistics("linear")[0].last_inference_ms == 0
    models.infer(ask("linear", batch_of(3)))  # comes, runs, has run
    found = models.statistics("linear")[0]
    assert (found.success.ns, found.queue.ns) == (2 * TICK, TICK)
    assert (found.compute_input.ns, found.compute_infer.ns, found.compute_output.ns) == (0, TICK, 0)
    assert found.last_inference_ms == 1_700_000_000_123


def test_requests_of_a_batch_are_timed_from_when_each_came(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    together = f"dynamic_batching {{ preferred_batch_size: [2] max_queue_delay_microseconds: {HOUR_US} }}"
    models = served(tmp_path, monkeypatch, together)
    with ThreadPoolExecutor(2) as threads:
        for each in [threads.submit(models.infer, ask("linear", batch_of(1))) for _ in range(2)]:
            result(each)  # both come; the batch begins, has its input, has run, is taken apart
    found = models.statistics("linear")[0]
    assert (found.success.ns, found.queue.ns) == ((5 + 4) * TICK, (2 + 1) * TICK)
    assert [each.ns for each in (found.compute_input, found.compute_infer, found.compute_output)] == [2 * TICK] * 3


def test_a_request_that_fails_is_timed_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    models = served(tmp_path, monkeypatch)
    with pytest.raises(InvalidInput):
        models.infer(ask("linear", batch_of(1)[:, :2]))
    assert models.statistics("linear")[0].fail == Duration(count=1, ns=TICK)
