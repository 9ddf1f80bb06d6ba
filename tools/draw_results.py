"""Draw and tabulate the 100-round runs in docs/results: `make results`."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median, stdev, variance
from typing import Any

from moonfed.experiments.papers.results import rounds_to
from moonfed.experiments.plots import Line, draw_lines, picture

RESULTS, PICTURE = Path("docs/results"), Path("docs/pictures/cifar10-100-rounds.png")
ROUNDS = 100
LAST = 10  # rounds whose accuracies are averaged, the last ones or each ten
FEDSSC_TARGET = 68.0  # percent; FedSSC's table I counts the rounds until then
FLOOR = 58  # percent: the methods differ above; all pass it in about ten rounds
SMOOTHED = 5  # rounds of the moving mean, which one lucky round does not lift
MODELS = {"scaffold": 2}  # that a party sends in a round, of the model's size; every other method sends one
NEVER = "not reached"
HEADER = (
    "| run | rounds | last | last ten | best (round) | reaches FedAvg's last | models | reaches 68 % | seconds |",
    "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
)
METHODS_HEADER = (
    "| method | trials | last, mean ± deviation | last ten, mean ± deviation | ahead of FedAvg, same seed | trials |",
    "| --- | --- | --- | --- | --- | --- |",
)
DETECTED = 2 * (1.96 + 0.84) ** 2  # two-sided test at 5 % of two means of n trials each, with a power of 80 %


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run so far: test accuracy in percent after each round and the round's seconds, from the first one on."""

    name: str
    method: str
    seed: int
    accuracy: tuple[float, ...]
    seconds: tuple[float, ...]

    @property
    def group(self) -> str:
        """The name without the seed: the runs of a group differ in nothing else."""
        return self.name.rpartition("-")[0]

    @property
    def finished(self) -> bool:
        """True if all rounds are done."""
        return len(self.accuracy) == ROUNDS

    @property
    def last_ten(self) -> float:
        """The mean accuracy of the last ten rounds."""
        return mean(self.accuracy[-LAST:])


def read_runs(results: Path) -> list[Run]:
    """Read the runs of a folder, by name; SOLO, which has parties instead of rounds, is left out."""
    found = {path.parent.name: _read_rows(path) for path in sorted(results.glob("*/results.jsonl"))}
    return [_to_run(name, rows) for name, rows in found.items() if rows and "party" not in rows[0]]


def _read_rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def _to_run(name: str, rounds: list[dict[str, Any]]) -> Run:
    first = rounds[0]
    accuracy = tuple(100 * one["accuracy"] for one in rounds)
    seconds = tuple(one["seconds"] for one in rounds)
    return Run(name=name, method=first["method"], seed=first["seed"], accuracy=accuracy, seconds=seconds)


def tabulate(runs: list[Run]) -> list[str]:
    """Return the lines of a Markdown table; accuracies are in percent, seconds the median.

    Brackets behind a round that reaches a target: the first one by whose moving mean it is reached.
    """
    return [*HEADER, *(_row(run, _baseline(runs, run.seed)) for run in runs)]


def _baseline(runs: list[Run], seed: int) -> float | None:
    """Return FedAvg's accuracy after the last round with a seed, in percent, once it has finished."""
    return next((one.accuracy[-1] for one in runs if one.name == f"cifar10-fedavg-{seed}" and one.finished), None)


def _row(run: Run, baseline: float | None) -> str:
    best = max(run.accuracy)
    cells = [
        f"`{run.name}`",
        str(len(run.accuracy)),
        f"{run.accuracy[-1]:.1f}",
        f"{run.last_ten:.1f}",
        f"{best:.1f} ({run.accuracy.index(best) + 1})",
        _reached(run, baseline),
        _models(run, baseline),
        _reached(run, FEDSSC_TARGET),
        f"{median(run.seconds):.0f}",
    ]
    return f"| {' | '.join(cells)} |"


def tabulate_by_tens(runs: list[Run]) -> list[str]:
    """Return a line for each finished run: its mean accuracy in percent over every ten rounds."""
    return [_by_tens(run) for run in runs if run.finished]


def _by_tens(run: Run) -> str:
    means = (mean(run.accuracy[start : start + LAST]) for start in range(0, ROUNDS, LAST))
    return f"| `{run.name}` | {' | '.join(f'{value:.1f}' for value in means)} |"


def _reached(run: Run, target: float | None) -> str:
    """Format the first round that reaches a target; NEVER if there is no target or no such round."""
    reached = None if target is None else rounds_to(run.accuracy, target)
    if target is None or reached is None:
        return NEVER
    moving = [mean(run.accuracy[end - SMOOTHED : end]) for end in range(SMOOTHED, len(run.accuracy) + 1)]
    smooth = rounds_to(moving, target)
    return f"round {reached} ({smooth + SMOOTHED - 1 if smooth else 'never'})"


def _models(run: Run, target: float | None) -> str:
    """Format the number of models that each party sends until a target is reached; pooled samples send none."""
    reached = None if target is None else rounds_to(run.accuracy, target)
    return "" if reached is None or run.method == "pooled" else str(reached * MODELS.get(run.method, 1))


def tabulate_methods(runs: list[Run]) -> list[str]:
    """Return the lines of a Markdown table with each method's finished trials, in points; deviations are the sample's.

    Differences are of the last round, from FedAvg on the same parties with the same seed.
    """
    return [*METHODS_HEADER, *(_method(group, trials, runs) for group, trials in _finished_groups(runs).items())]


def _finished_groups(runs: list[Run]) -> dict[str, list[Run]]:
    groups: dict[str, list[Run]] = {}
    for run in runs:
        if run.finished:
            groups.setdefault(run.group, []).append(run)
    return groups


def _method(group: str, trials: list[Run], runs: list[Run]) -> str:
    ahead = [
        run.accuracy[-1] - baseline
        for run in trials
        if group != "cifar10-fedavg" and (baseline := _baseline(runs, run.seed)) is not None
    ]
    cells = [
        f"`{group}`",
        str(len(trials)),
        _mean([run.accuracy[-1] for run in trials]),
        _mean([run.last_ten for run in trials]),
        *((_mean(ahead, sign="+"), str(len(ahead))) if ahead else ("", "")),
    ]
    return f"| {' | '.join(cells)} |"


def _mean(values: list[float], sign: str = "") -> str:
    return f"{mean(values):{sign}.1f}" + (f" ± {stdev(values):.1f}" if len(values) > 1 else "")


def seed_deviation(runs: list[Run]) -> float:
    """Return the deviation of the last round between seeds, in points, pooled over the groups of several trials."""
    last = [[run.accuracy[-1] for run in trials] for trials in _finished_groups(runs).values()]
    several = [values for values in last if len(values) > 1]
    return math.sqrt(sum(variance(one) * (len(one) - 1) for one in several) / sum(len(one) - 1 for one in several))


def trials_needed(difference: float, deviation: float) -> int:
    """Return the trials of either method that detect a difference, in points, in 80 % of the cases."""
    return math.ceil(DETECTED * (deviation / difference) ** 2)


def draw(runs: list[Run], target: Path) -> None:
    """Draw the accuracies by round: for each method the mean of its finished trials, with their deviation."""
    title = "CIFAR-10, ten parties, test accuracy in percent"
    with picture(target, 1, 1, width=7.5, height=4.2, title=title) as (axes,):
        lines = [_line(group, trials) for group, trials in _finished_groups(runs).items()]
        draw_lines(axes, lines, x="round", y="accuracy (%)")
        axes.set_ylim(bottom=FLOOR)
        axes.legend(loc="lower right", fontsize=7, ncol=2)


def _line(group: str, trials: list[Run]) -> Line:
    rounds = list(zip(*(run.accuracy for run in trials), strict=True))
    several = len(trials) > 1
    return Line(
        label=group.removeprefix("cifar10-") + (f" ({len(trials)} trials)" if several else ""),
        x=range(1, ROUNDS + 1),
        y=[mean(accuracies) for accuracies in rounds],
        deviation=[stdev(accuracies) for accuracies in rounds] if several else (),
    )


if __name__ == "__main__":
    found = read_runs(RESULTS)
    draw(found, PICTURE)
    print("\n".join([*tabulate(found), "", *tabulate_methods(found), "", *tabulate_by_tens(found), ""]))
    deviation = seed_deviation(found)
    needed = ", ".join(f"{trials_needed(points, deviation)} for {points:g}" for points in (0.3, 0.6, 0.7, 2.5, 2.8))
    print(f"deviation between seeds {deviation:.2f} points; trials needed for a difference in points: {needed}")
