"""Settings of predictions."""

from __future__ import annotations

from dataclasses import dataclass

from moonfed.plan.selection import AUTO, parse_format
from moonfed.sandbox.child_process import SILENCE_SECONDS
from moonfed.sandbox.policy import Level
from moonfed.validate import require, require_whole

DEVICES = ("cpu", "cuda", "tensorrt")


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceSettings:
    """Device, threads and sandbox of predictions; InvalidInput names a wrong option."""

    device: str = "cpu"  # of DEVICES; the last needs ONNX Runtime
    threads: int | None = None  # None: the runtime chooses
    sandbox: Level = "strict"  # of a plan
    plan_format: str = AUTO  # of moonfed.plan.selection.FORMATS
    silence_seconds: float = SILENCE_SECONDS  # for one chunk of a plan

    def __post_init__(self) -> None:
        require(self.device in DEVICES, "device", self.device, "'cpu', 'cuda' or 'tensorrt'")
        parse_format(self.plan_format)
        if self.threads is not None:
            require_whole("threads", self.threads, 1)
