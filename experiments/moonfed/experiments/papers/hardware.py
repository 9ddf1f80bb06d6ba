"""What the figures were measured on, in words."""

from __future__ import annotations

import os
import platform
from pathlib import Path

CPU_INFORMATION = Path("/proc/cpuinfo")


def describe_hardware(device: str, workers: int) -> str:
    """The processor or the GPU, the machine's cores, how many workers trained on them, and torch's version."""
    import torch

    name = torch.cuda.get_device_name() if device == "cuda" and torch.cuda.is_available() else _processor()
    crew = f"{os.cpu_count()} cores, {workers} worker{'s' if workers != 1 else ''}"
    return f"{name}, {crew}, Python {platform.python_version()}, torch {torch.__version__}"


def _processor() -> str:
    """The processor's name as the kernel tells it; the architecture where it does not."""
    try:
        lines = CPU_INFORMATION.read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())
