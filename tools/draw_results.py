"""Draw and tabulate the 100-round runs in docs/results: `make results`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from moonfed.experiments.papers.results import rounds_to
from moonfed.experiments.plots import Line, draw_lines, picture

RESULTS, PICTURE = Path("docs/results"), Path("docs/pictures/cifar10-100-rounds.png")
ROUNDS = 100
LAST = 10  # rounds whose accuracies are averaged, the last ones or each ten
FEDSSC_TARGET = 68.0  # percent; FedSSC's table I counts the rounds until then
FLOOR = 58  # percent: the methods differ above; all pass it in about ten rounds
NEVER = "not reached"
HEADER = (
    "| run | rounds | last | mean of last ten | best (round) | reaches FedAvg's last | reaches 68 % | seconds |",
    "| --- | --- | --- | --- | --- | --- | --- | --- |",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run so far: test accuracy in percent after each round and the round's seconds, from the first one on."""

    name: str
    method: str
    seed: int
    accuracy: tuple[float, ...]
    seconds: tuple[float, ...]

    @property
    def label(self) -> str:
        """The name in a picture's legend."""
        state = "" if len(self.accuracy) == ROUNDS else f" (round {len(self.accuracy)})"
        return self.name.removeprefix("cifar10-") + state


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
    """Return the lines of a Markdown table; accuracies are in percent, seconds the median."""
    return [*HEADER, *(_row(run, _baseline(runs, run.seed)) for run in runs)]


def _baseline(runs: list[Run], seed: int) -> float | None:
    """Return FedAvg's accuracy after the last round with a seed, in percent, once it has finished."""
    finished = (one for one in runs if (one.method, one.seed, len(one.accuracy)) == ("fedavg", seed, ROUNDS))
    return next((one.accuracy[-1] for one in finished), None)


def _row(run: Run, baseline: float | None) -> str:
    last, best = run.accuracy[-LAST:], max(run.accuracy)
    cells = [
        f"`{run.name}`",
        str(len(run.accuracy)),
        f"{last[-1]:.1f}",
        f"{sum(last) / len(last):.1f}",
        f"{best:.1f} ({run.accuracy.index(best) + 1})",
        _reached(run, baseline),
        _reached(run, FEDSSC_TARGET),
        f"{median(run.seconds):.0f}",
    ]
    return f"| {' | '.join(cells)} |"


def tabulate_by_tens(runs: list[Run]) -> list[str]:
    """Return a line for each finished run: its mean accuracy in percent over every ten rounds."""
    return [_by_tens(run) for run in runs if len(run.accuracy) == ROUNDS]


def _by_tens(run: Run) -> str:
    means = (sum(run.accuracy[start : start + LAST]) / LAST for start in range(0, ROUNDS, LAST))
    return f"| `{run.name}` | {' | '.join(f'{mean:.1f}' for mean in means)} |"


def _reached(run: Run, target: float | None) -> str:
    """Format the first round that reaches a target; NEVER if there is no target or no such round."""
    reached = None if target is None else rounds_to(run.accuracy, target)
    return f"round {reached}" if reached else NEVER


def draw(runs: list[Run], target: Path) -> None:
    """Draw the accuracies by round."""
    with picture(target, 1, 1, width=7.5, height=4.2, title="CIFAR-10, ten parties, test accuracy in percent") as (
        axes,
    ):
        lines = [Line(label=run.label, x=range(1, len(run.accuracy) + 1), y=run.accuracy) for run in runs]
        draw_lines(axes, lines, x="round", y="accuracy (%)")
        axes.set_ylim(bottom=FLOOR)
        axes.legend(loc="lower right", fontsize=7, ncol=2)


if __name__ == "__main__":
    found = read_runs(RESULTS)
    draw(found, PICTURE)
    print("\n".join([*tabulate(found), "", *tabulate_by_tens(found)]))
