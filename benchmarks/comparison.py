"""Some sides on one piece of work: their times per step and their peak memory, as figures."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.peak import peak_megabytes
from benchmarks.report import Figure, say
from benchmarks.sides import Side, Work, alternate, new_round

TITLES = {"cnn": "CNN", "resnet18": "ResNet-18", "resnet50": "ResNet-50"}


@dataclass(frozen=True, slots=True)
class Comparison:
    """Seconds per round of each side, one for each turn."""

    work: Work
    seconds: Mapping[Side, Sequence[float]]

    def ratio(self, above: Side, below: Side) -> float:
        """The median of the turns' ratios: what slows a whole turn cancels out."""
        return statistics.median(a / b for a, b in zip(self.seconds[above], self.seconds[below], strict=True))

    def times(self) -> list[Figure]:
        """Milliseconds per step, the pass that computes references included."""
        return [
            Figure(
                name=f"{title(self.work)}: {side.name}",
                value=1e3 * statistics.median(seconds) / self.work.steps,
                unit="ms",
            )
            for side, seconds in self.seconds.items()
        ]


def compare(sides: Sequence[Side], work: Work, turns: int) -> Comparison:
    say(f"{title(work)}: {len(sides)} sides, {turns} turns of {work.steps} steps")
    return Comparison(work, alternate({side: new_round(side, work) for side in sides}, work, turns))


def peaks(sides: Sequence[Side], work: Work) -> list[Figure]:
    say(f"{title(work)}: peak memory")
    return [
        Figure(name=f"{title(work)}: {side.name}, peak memory", value=peak_megabytes(side, work), unit="MB")
        for side in sides
    ]


def title(work: Work) -> str:
    return TITLES[work.model] if work.accelerator == "cpu" else f"{TITLES[work.model]} on CUDA"
