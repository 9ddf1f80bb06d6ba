"""The statistics of a model version, as Triton defines them."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


@dataclass(frozen=True, slots=True, kw_only=True)
class Duration:
    """A number of events and their total nanoseconds."""

    count: int = 0
    ns: int = 0


NO_CACHE = Duration()  # clients read Triton's cache statistics unconditionally


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchStatistics:
    """The executions of one batch size."""

    batch_size: int
    compute_input: Duration
    compute_infer: Duration
    compute_output: Duration


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionStatistics:
    """The statistics of one version since it was loaded, in Triton's terms."""

    name: str
    version: str
    last_inference_ms: int = 0  # since 1970; 0: none yet
    inference_count: int = 0  # samples in successful requests
    execution_count: int = 0  # runs of ONNX Runtime
    pending: int = 0  # requests waiting for an instance
    success: Duration = Duration()
    fail: Duration = Duration()
    queue: Duration = Duration()
    compute_input: Duration = Duration()
    compute_infer: Duration = Duration()
    compute_output: Duration = Duration()
    failures: Mapping[str, int] = field(default_factory=dict)  # by reason: "REJECTED", "BACKEND", "OTHER"
    batches: tuple[BatchStatistics, ...] = ()  # by batch size


class ExecutedRequest(NamedTuple):
    """A request of an execution. A NamedTuple, since one is created per request and a dataclass is slower to create."""

    samples: int
    arrived_ns: int
    dequeued_ns: int


class StatisticsRecorder:
    """The counters of one version. Thread-safe; times are from `time.monotonic_ns`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests = _Sums()
        self._batches: dict[int, _Sums] = {}
        self._success, self._queue = _Sum(), _Sum()
        self._failures: dict[str, _Sum] = {}
        self._inferences, self._last_ns = 0, 0

    def record_execution(self, requests: Sequence[ExecutedRequest], computing: tuple[int, int, int, int]) -> None:
        """Count an execution of these requests; `computing`: when it started, had its input, had its output, ended."""
        begun, fed, inferred, ended = computing
        durations = (fed - begun, inferred - fed, ended - inferred)
        with self._lock:
            size = 0
            for samples, arrived, started in requests:
                size += samples
                self._success.add(ended - arrived)
                self._queue.add(started - arrived)
                self._requests.add(durations)
            self._inferences += size
            self._last_ns = time.time_ns()
            batch = self._batches.get(size)
            if batch is None:
                batch = self._batches[size] = _Sums()
            batch.add(durations)

    def record_failure(self, reason: str, ns: int) -> None:
        """Count a failed request."""
        with self._lock:
            self._failures.setdefault(reason, _Sum()).add(ns)

    def snapshot(self, name: str, version: str, pending: int) -> VersionStatistics:
        """Return all counts at one moment."""
        with self._lock:
            failures = {reason: each.count for reason, each in self._failures.items()}
            failed_ns = sum(each.ns for each in self._failures.values())
            batches = [(size, sums.durations()) for size, sums in sorted(self._batches.items())]
            compute = self._requests.durations()
            return VersionStatistics(
                name=name,
                version=version,
                last_inference_ms=self._last_ns // 1_000_000,
                inference_count=self._inferences,
                execution_count=sum(durations[0].count for _, durations in batches),
                pending=pending,
                success=self._success.duration(),
                fail=Duration(count=sum(failures.values()), ns=failed_ns),
                queue=self._queue.duration(),
                compute_input=compute[0],
                compute_infer=compute[1],
                compute_output=compute[2],
                failures=failures,
                batches=tuple(_batch(size, durations) for size, durations in batches),
            )


def _batch(size: int, durations: tuple[Duration, Duration, Duration]) -> BatchStatistics:
    return BatchStatistics(
        batch_size=size, compute_input=durations[0], compute_infer=durations[1], compute_output=durations[2]
    )


class _Sum:
    """An accumulating duration."""

    __slots__ = ("count", "ns")

    def __init__(self) -> None:
        self.count, self.ns = 0, 0

    def add(self, ns: int) -> None:
        self.count += 1
        self.ns += ns

    def duration(self) -> Duration:
        return Duration(count=self.count, ns=self.ns)


class _Sums:
    """The accumulating durations of an execution's three phases."""

    __slots__ = ("count", "infer", "input", "output")

    def __init__(self) -> None:
        self.count = 0
        self.input = 0
        self.infer = 0
        self.output = 0

    def add(self, durations: tuple[int, int, int]) -> None:
        self.count += 1
        self.input += durations[0]
        self.infer += durations[1]
        self.output += durations[2]

    def durations(self) -> tuple[Duration, Duration, Duration]:
        """Return the durations of input, inference and output."""
        count = self.count
        return (
            Duration(count=count, ns=self.input),
            Duration(count=count, ns=self.infer),
            Duration(count=count, ns=self.output),
        )
