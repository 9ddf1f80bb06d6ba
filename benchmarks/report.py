"""Figures with their targets, as a table for people and as JSON for scripts."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measured figure; a target is an upper or a lower limit."""

    name: str
    value: float
    unit: str
    at_most: float | None = None
    at_least: float | None = None

    @property
    def target(self) -> str:
        if self.at_most is not None:
            return f"at most {self.at_most:g}"
        return f"at least {self.at_least:g}" if self.at_least is not None else ""

    @property
    def met(self) -> bool | None:
        if self.at_most is not None:
            return self.value <= self.at_most
        return self.value >= self.at_least if self.at_least is not None else None


def print_table(figures: Sequence[Figure]) -> None:
    width = max(len(figure.name) for figure in figures)
    for figure in figures:
        verdict = {True: "met", False: "NOT MET", None: ""}[figure.met]
        print(f"{figure.name:{width}}  {figure.value:9.2f} {figure.unit:6} {figure.target:14} {verdict}")


def write_report(path: Path, figures: Sequence[Figure]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [
        {"name": f.name, "value": f.value, "unit": f.unit, "target": f.target or None, "met": f.met} for f in figures
    ]
    path.write_text(json.dumps({"hardware": hardware(), "figures": rows}, indent=1) + "\n")


def hardware() -> dict[str, object]:
    """What the figures were measured on."""
    return {
        "machine": platform.machine(),
        "processor": processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def processor() -> str:
    """The processor's model name, where the system tells."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
