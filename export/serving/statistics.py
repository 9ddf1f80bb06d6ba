"""What Triton counts of a model's version."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Duration:
    """How often, and how many nanoseconds in all."""

    count: int = 0
    ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchStatistics:
    """The executions of one batch size."""

    batch_size: int
    compute_input: Duration
    compute_infer: Duration
    compute_output: Duration


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionStatistics:
    """Of one version since it was loaded, in Triton's terms."""

    name: str
    version: str
    last_inference_ms: int = 0  # since 1970; 0: none yet
    inference_count: int = 0  # samples that were answered
    execution_count: int = 0  # runs of ONNX Runtime
    pending: int = 0  # requests that wait for an instance
    success: Duration = Duration()
    fail: Duration = Duration()
    queue: Duration = Duration()
    compute_input: Duration = Duration()
    compute_infer: Duration = Duration()
    compute_output: Duration = Duration()
    failures: Mapping[str, int] = field(default_factory=dict)  # by reason: "REJECTED", "BACKEND", "OTHER"
    batches: tuple[BatchStatistics, ...] = ()  # by batch size
