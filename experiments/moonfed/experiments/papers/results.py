"""Results of simulations: trials, and the numbers that tables and figures are made of. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, median, pstdev, stdev

from moonfed.experiments.papers.recipe import Cell, Panel

RATIO_DIGITS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One simulation of a cell, or one split. Accuracies are shares from 0 to 1.

    A trial of SOLO has `parties` in place of rounds; a split without training has `counts` and nothing else.
    """

    seed: int
    tuned: float | None = None  # the value of the cell's tuned setting that this trial tried
    accuracy: tuple[float, ...] = ()  # of the global model after round 1, 2 and so on
    seconds: tuple[float, ...] = ()  # of each round, the parties in turn
    traffic: tuple[int, ...] = ()  # bytes that all parties received and sent in each round
    parties: tuple[float, ...] = ()  # accuracy of each party that trained alone
    counts: tuple[tuple[int, ...], ...] = ()  # samples by party and class


@dataclass(frozen=True, slots=True, kw_only=True)
class CellResult:
    """A cell with its trials: those of the best tuned value, if several were tried."""

    cell: Cell
    trials: tuple[Trial, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelResult:
    """A panel with the results of its cells, in their order."""

    panel: Panel
    cells: tuple[CellResult, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """One number of a table. `value` is None if there is none; `text` is its printed form."""

    text: str
    value: float | None = None
    deviation: float | None = None


def summarise(result: PanelResult, cell: CellResult) -> Summary:
    """Return a cell's number, as its panel measures it."""
    if result.panel.measure == "accuracy":
        values = final_accuracies(cell.cell, cell.trials)
        deviation = pstdev if cell.trials[0].parties else stdev  # the parties are all there are, the trials a sample
        return _number(100 * mean(values), 100 * deviation(values) if len(values) > 1 else None)
    if result.panel.measure in ("rounds", "speed-up"):
        return _rounds(result, cell)
    if result.panel.measure == "seconds":
        value = _seconds(cell)
        return _number(value, None, digits=max(0, 2 - math.floor(math.log10(max(value, 0.01)))))
    if result.panel.measure == "ratio":
        return _number(_seconds(cell) / _seconds(_reference(result, cell)), None, digits=RATIO_DIGITS)
    if result.panel.measure == "spread":
        return _spread(cell.trials)
    return _number(sum(map(sum, cell.trials[0].counts)), None, digits=0)


def final_accuracies(cell: Cell, trials: Sequence[Trial]) -> list[float]:
    """Return each trial's accuracy at the round whose accuracy the cell reports; for SOLO, each party's."""
    if trials[0].parties:
        return [value for trial in trials for value in trial.parties]
    return [trial.accuracy[cell.reading_round(len(trial.accuracy)) - 1] for trial in trials]


def rounds_to(accuracy: Sequence[float], target: float) -> int | None:
    """Return the first round, counted from 1, whose model is at least as accurate as the target; None if none is."""
    return next((number for number, value in enumerate(accuracy, start=1) if value >= target), None)


def speed_up(ratio: float) -> str:
    """Format a speed-up with one digit; a half goes up, as on paper."""
    return f"{math.floor(10 * ratio + 0.5) / 10:.1f}x"


def targets(result: PanelResult, cell: CellResult) -> list[float]:
    """Return the accuracy to reach for each trial: a fixed one, or the last of the reference with that seed."""
    if isinstance(result.panel.target, float):
        return [result.panel.target] * len(cell.trials)
    last = {trial.seed: trial.accuracy[-1] for trial in _reference(result, cell).trials}
    return [last[trial.seed] for trial in cell.trials]


def _reference(result: PanelResult, cell: CellResult) -> CellResult:
    """Find the cell of the panel's target row in the same column."""
    place = (result.panel.target, cell.cell.dataset, cell.cell.column)
    return next(other for other in result.cells if (other.cell.row, other.cell.dataset, other.cell.column) == place)


def best_trials(cell: Cell, trials: Sequence[Trial]) -> tuple[Trial, ...]:
    """Return the trials of the tuned value with the highest mean accuracy; the first of equals."""
    groups = [[trial for trial in trials if trial.tuned == value] for value in dict.fromkeys(t.tuned for t in trials)]
    if len(groups) == 1:  # nothing was tuned; splits have no accuracy
        return tuple(groups[0])
    return max(map(tuple, groups), key=lambda group: mean(final_accuracies(cell, group)))


def _rounds(result: PanelResult, cell: CellResult) -> Summary:
    """Average the rounds to the target, or the speed-up, over the trials that reach it.

    The reference itself takes all rounds by definition. Blank where no trial reaches a row's accuracy.
    """
    rounds = len(cell.trials[0].accuracy)
    needed: list[int | None] = [rounds] * len(cell.trials)
    if cell.cell.row != result.panel.target:
        wanted = targets(result, cell)
        needed = [rounds_to(trial.accuracy, target) for trial, target in zip(cell.trials, wanted, strict=True)]
    reached = [number for number in needed if number is not None]
    if not reached:
        return Summary(text=f">{rounds}" if isinstance(result.panel.target, float) else "")
    if result.panel.measure == "speed-up":
        value = mean(rounds / number for number in reached)
        found = Summary(text=speed_up(value), value=value)
    else:
        found = _number(mean(reached), stdev(reached) if len(set(reached)) > 1 else None, digits=int(len(reached) > 1))
    if len(reached) == len(needed):
        return found
    text = f"{found.text} ({len(reached)} of {len(needed)} trials)"
    return Summary(text=text, value=found.value, deviation=found.deviation)


def _seconds(cell: CellResult) -> float:
    """Return the median over all rounds."""
    return median(second for trial in cell.trials for second in trial.seconds)


def _spread(trials: Sequence[Trial]) -> Summary:
    """Return the mean samples per party, and the population deviation over the parties, as in the paper."""
    sizes = [[sum(row) for row in trial.counts] for trial in trials]
    return _number(mean(map(mean, sizes)), mean(map(pstdev, sizes)), digits=0)


def _number(value: float, deviation: float | None, *, digits: int = 1) -> Summary:
    text = f"{value:,.{digits}f}" + ("" if deviation is None else f" ± {deviation:,.{digits}f}")
    return Summary(text=text, value=value, deviation=deviation)
