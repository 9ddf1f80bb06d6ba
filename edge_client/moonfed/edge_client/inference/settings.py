"""Settings of predictions."""

from __future__ import annotations

from dataclasses import dataclass

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
    silence_seconds: float = SILENCE_SECONDS  # for one chunk of a plan

    def __post_init__(self) -> None:
        require(self.device in DEVICES, "device", self.device, "'cpu', 'cuda' or 'tensorrt'")
        if self.threads is not None:
            require_whole("threads", self.threads, 1)
