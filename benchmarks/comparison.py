"""Contenders on one workload: time per step and peak memory as figures."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.contenders import Contender, Workload, alternate, new_round
from benchmarks.peak_memory import peak_megabytes
from benchmarks.report import Figure, progress

TITLES = {"cnn": "CNN", "resnet18": "ResNet-18", "resnet50": "ResNet-50"}


@dataclass(frozen=True, slots=True)
class Comparison:
    """Seconds per round of each contender, one per turn."""

    work: Workload
    seconds: Mapping[Contender, Sequence[float]]

    def ratio(self, above: Contender, below: Contender) -> float:
        """Return the median of the turns' ratios, which cancels whatever slows a whole turn."""
        return statistics.median(a / b for a, b in zip(self.seconds[above], self.seconds[below], strict=True))

    def times(self) -> list[Figure]:
        """Return milliseconds per step, including the pass that computes references."""
        return [
            Figure(
                name=f"{title(self.work)}: {contender.name}",
                value=1e3 * statistics.median(seconds) / self.work.steps,
                unit="ms",
            )
            for contender, seconds in self.seconds.items()
        ]


def compare(contenders: Sequence[Contender], work: Workload, turns: int) -> Comparison:
    progress(f"{title(work)}: {len(contenders)} contenders, {turns} turns of {work.steps} steps")
    return Comparison(work, alternate({contender: new_round(contender, work) for contender in contenders}, work, turns))


def peaks(contenders: Sequence[Contender], work: Workload) -> list[Figure]:
    progress(f"{title(work)}: peak memory")
    return [
        Figure(name=f"{title(work)}: {contender.name}, peak memory", value=peak_megabytes(contender, work), unit="MB")
        for contender in contenders
    ]


def title(work: Workload) -> str:
    return TITLES[work.model] if work.accelerator == "cpu" else f"{TITLES[work.model]} on CUDA"
