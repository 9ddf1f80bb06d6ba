"""Description of the hardware that figures were measured on."""

from __future__ import annotations

import os
import platform
from pathlib import Path

CPU_INFORMATION = Path("/proc/cpuinfo")


def describe_hardware(device: str, workers: int) -> str:
    """Name the processor or GPU, the machine's cores, the number of workers, and torch's version."""
    import torch

    name = torch.cuda.get_device_name() if device == "cuda" and torch.cuda.is_available() else _processor()
    crew = f"{os.cpu_count()} cores, {workers} worker{'s' if workers != 1 else ''}"
    return f"{name}, {crew}, Python {platform.python_version()}, torch {torch.__version__}"


def _processor() -> str:
    """Return the processor's name as the kernel reports it, or the architecture."""
    try:
        lines = CPU_INFORMATION.read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())
