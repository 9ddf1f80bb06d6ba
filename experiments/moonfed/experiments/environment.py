"""Description of the hardware and software that figures were measured with."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path

from moonfed.version import RELEASE

CPU_INFORMATION = Path("/proc/cpuinfo")


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The processor or GPU that trains, the machine's cores, the workers, and the versions that matter."""

    processor: str
    cores: int
    workers: int
    moonfed: str
    python: str
    torch: str

    def __str__(self) -> str:
        crew = f"{self.cores} cores, {self.workers} worker{'s' if self.workers != 1 else ''}"
        return f"{self.processor}, {crew}, Python {self.python}, torch {self.torch}"


def describe_environment(device: str, workers: int) -> Environment:
    """Describe this machine; `device` is cpu or cuda."""
    import torch

    gpu = device == "cuda" and torch.cuda.is_available()
    return Environment(
        processor=torch.cuda.get_device_name() if gpu else _processor(),
        cores=os.cpu_count() or 1,
        workers=workers,
        moonfed=RELEASE,
        python=platform.python_version(),
        torch=torch.__version__,
    )


def _processor() -> str:
    """Return the processor's name as the kernel reports it, or the architecture."""
    try:
        lines = CPU_INFORMATION.read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())
