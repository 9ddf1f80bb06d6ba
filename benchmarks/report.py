"""Figures with their targets: a table for people, JSON for scripts."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measured value; its target is an upper or a lower limit. If `value` is None, `reason` says why."""

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


Tables: TypeAlias = Iterator[Sequence[Figure]]  # a benchmark yields each table as soon as it is measured


def progress(text: str) -> None:
    """Print the current measurement's name on standard error."""
    print(f"  … {text}", file=sys.stderr, flush=True)


def record(tables: Iterable[Sequence[Figure]], path: Path) -> list[Figure]:
    """Print each table and rewrite the report as soon as the table is measured; return all figures."""
    figures: list[Figure] = []
    write_report(path, figures, complete=False)
    for table in tables:
        print_table(table)
        figures += table
        write_report(path, figures, complete=False)
    write_report(path, figures, complete=True)
    print_missed(figures)
    return figures


def print_table(figures: Sequence[Figure]) -> None:
    """Print one line per figure."""
    width = max(len(figure.name) for figure in figures)
    for figure in figures:
        print(f"{figure.name:{width}}  {_value(figure)} {figure.target:14} {_verdict(figure)}".rstrip(), flush=True)


def print_missed(figures: Iterable[Figure]) -> None:
    """Print one line per missed target."""
    for figure in figures:
        if figure.met is False:
            print(f"not met: {figure.name} is {figure.value:.3g} {figure.unit}; its target is {figure.target}")


def _value(figure: Figure) -> str:
    return f"{figure.value:9.2f} {figure.unit:6}" if figure.value is not None else " " * 16


def _verdict(figure: Figure) -> str:
    if figure.value is None:
        return f"unmeasured: {figure.reason}"
    return {True: "met", False: "NOT MET", None: ""}[figure.met]


def write_report(path: Path, figures: Sequence[Figure], *, complete: bool = True) -> None:
    """Replace the report: hardware and figures; `value` and `met` are null for an unmeasured figure."""
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {"hardware": hardware(), "complete": complete, "figures": [_row(figure) for figure in figures]}
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(document, indent=1) + "\n")
    partial.replace(path)


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
    """Describe the machine."""
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
    """Return the processor's model name, or an empty string if the system does not report it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
