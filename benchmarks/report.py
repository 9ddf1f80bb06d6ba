"""Figures with their targets, as a table for people and as JSON for scripts."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One figure; a target is an upper or a lower limit. Without a value it was not measured, and `reason` says why."""

    name: str
    unit: str
    value: float | None = None
    at_most: float | None = None
    at_least: float | None = None
    reason: str = ""

    @property
    def target(self) -> str:
        if self.at_most is not None:
            return f"at most {self.at_most:.4g}"
        return f"at least {self.at_least:.4g}" if self.at_least is not None else ""

    @property
    def met(self) -> bool | None:
        if self.value is None:
            return None
        if self.at_most is not None:
            return self.value <= self.at_most
        return self.value >= self.at_least if self.at_least is not None else None


def say(text: str) -> None:
    """What is being measured now, for whoever waits."""
    print(f"  … {text}", file=sys.stderr, flush=True)


def print_table(figures: Sequence[Figure]) -> None:
    """A line for each figure, and in the end one for each that misses its target."""
    width = max(len(figure.name) for figure in figures)
    for figure in figures:
        print(f"{figure.name:{width}}  {_value(figure)} {figure.target:14} {_verdict(figure)}".rstrip())
    for figure in figures:
        if figure.met is False:
            print(f"not met: {figure.name} is {figure.value:.3g} {figure.unit}; its target is {figure.target}")


def _value(figure: Figure) -> str:
    return f"{figure.value:9.2f} {figure.unit:6}" if figure.value is not None else " " * 16


def _verdict(figure: Figure) -> str:
    if figure.value is None:
        return f"unmeasured: {figure.reason}"
    return {True: "met", False: "NOT MET", None: ""}[figure.met]


def write_report(path: Path, figures: Sequence[Figure]) -> None:
    """The hardware and the figures; `value` and `met` are null where nothing was measured, and `reason` says why."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"hardware": hardware(), "figures": [_row(f) for f in figures]}, indent=1) + "\n")


def _row(figure: Figure) -> dict[str, object]:
    row: dict[str, object] = {
        "name": figure.name,
        "value": figure.value,
        "unit": figure.unit,
        "target": figure.target or None,
        "met": figure.met,
    }
    return row if figure.value is not None else {**row, "reason": f"unmeasured: {figure.reason}"}


def hardware() -> dict[str, object]:
    """What the figures were measured on."""
    return {
        "machine": platform.machine(),
        "processor": processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda_device": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


def processor() -> str:
    """The processor's model name, where the system tells."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
