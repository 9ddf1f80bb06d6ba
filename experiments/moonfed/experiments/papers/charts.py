"""The figure of a recipe: the functions of `moonfed.experiments.plots` that draw its panels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate
from math import ceil
from pathlib import Path
from statistics import mean, stdev
from typing import TYPE_CHECKING

import numpy as np

from moonfed.experiments.papers.labels import column_label, panel_label, stands_in
from moonfed.experiments.papers.recipe import Recipe
from moonfed.experiments.papers.results import CellResult, PanelResult, summarise
from moonfed.experiments.plots import (
    TRAFFIC,
    Line,
    Pair,
    draw_bars,
    draw_comparison,
    draw_heat_map,
    draw_lines,
    picture,
    share_legend,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ACROSS = 3  # parts of a figure in one row
UNITS = {
    "accuracy": "accuracy, %",
    "rounds": "rounds",
    "speed-up": "speed-up",
    "seconds": "seconds per round",
    "ratio": "ratio to FedAvg",
    "spread": "samples per party",
    "test samples": "test samples",
}
Part = tuple[str, Callable[["Axes"], None]]  # a title, and the function that draws below it


def draw_recipe(path: Path, recipe: Recipe, results: Sequence[PanelResult], *, data: str = "") -> None:
    """Write the PNG. `data`: the data set that replaces the paper's, if any."""
    parts = [part for result in results for part in _parts(result, data, several=len(results) > 1)]
    across = 2 if len(parts) == 4 else min(ACROSS, len(parts))
    tall = max(len({cell.cell.row for cell in result.cells}) for result in results)
    with picture(
        path, ceil(len(parts) / across), across, width=4.6, height=max(3.4, 0.45 * tall + 1.4), title=recipe.title
    ) as grid:
        for axes, (title, draw) in zip(grid, parts, strict=False):
            draw(axes)
            axes.set_title(title, fontsize=10)
        for axes in grid[len(parts) :]:
            axes.set_visible(False)
        share_legend(grid)


def _parts(result: PanelResult, data: str, *, several: bool) -> list[Part]:
    chart = result.panel.chart
    if chart in ("comparison", "bars") or _is_a_point(result):
        prefix = f"{result.panel.title}; " if several else ""
        return [_pairs(result, cells, prefix + column_label(cells[0].cell, data), data) for cells in _columns(result)]
    title = panel_label(result.panel, data)
    if chart == "curves":
        trained = [cell for cell in result.cells if cell.trials[0].accuracy]
        by_round, by_traffic = [_curve(cell) for cell in trained], [_traffic_curve(cell) for cell in trained]
        return [
            (title, lambda axes: draw_lines(axes, by_round, x="round", y=UNITS["accuracy"])),
            (f"{title}, by traffic", lambda axes: draw_lines(axes, by_traffic, x=TRAFFIC, y=UNITS["accuracy"])),
        ]
    if chart == "lines":
        ticks = list(dict.fromkeys(cell.cell.column for cell in result.cells))
        series = _series(result, ticks)
        return [(title, lambda axes: draw_lines(axes, series, x=result.panel.x, y=UNITS["accuracy"], ticks=ticks))]
    return [_heat_map(title, cell) for cell in result.cells]


def _is_a_point(result: PanelResult) -> bool:
    """Return True if every line of a chart would be a single point."""
    if result.panel.chart == "curves":
        return all(len(trial.accuracy) < 2 for cell in result.cells for trial in cell.trials)
    return result.panel.chart == "lines" and len({cell.cell.column for cell in result.cells}) < 2


def _columns(result: PanelResult) -> list[list[CellResult]]:
    """Group the cells by column."""
    columns: dict[tuple[str, str], list[CellResult]] = {}
    for cell in result.cells:
        columns.setdefault((cell.cell.dataset, cell.cell.column), []).append(cell)
    return list(columns.values())


def _pairs(result: PanelResult, cells: Sequence[CellResult], title: str, data: str) -> Part:
    pairs = []
    for cell in cells:
        ours, paper = summarise(result, cell), cell.cell.paper
        if stands_in(cell.cell.dataset, data):  # no two data sets on one axis
            paper = None
        pairs.append(
            Pair(
                label=cell.cell.row,
                ours=ours.value,
                ours_deviation=ours.deviation,
                paper=paper.value if paper else None,
                paper_deviation=paper.deviation if paper else None,
            )
        )
    draw = draw_bars if result.panel.chart == "bars" else draw_comparison
    return title, lambda axes: draw(axes, pairs, x=UNITS[result.panel.measure])


def _curve(cell: CellResult) -> Line:
    """Return accuracy by round in percent, mean and deviation over the trials."""
    rounds = list(zip(*(trial.accuracy for trial in cell.trials), strict=True))
    deviation = [100 * stdev(values) for values in rounds] if len(cell.trials) > 1 else []
    numbers = list(range(1, len(rounds) + 1))
    return Line(label=cell.cell.row, x=numbers, y=[100 * mean(values) for values in rounds], deviation=deviation)


def _traffic_curve(cell: CellResult) -> Line:
    """Return accuracy in percent by the MB that all parties have received and sent; a mean over the trials each."""
    traffic = [mean(values) / 1e6 for values in zip(*(trial.traffic for trial in cell.trials), strict=True)]
    return replace(_curve(cell), x=list(accumulate(traffic)))


def _series(result: PanelResult, ticks: Sequence[str]) -> list[Line]:
    """Return a line for each row over the columns' places."""
    lines = []
    for row in dict.fromkeys(cell.cell.row for cell in result.cells):
        cells = [cell for cell in result.cells if cell.cell.row == row]
        summaries = [summarise(result, cell) for cell in cells]
        lines.append(
            Line(
                label=row,
                x=[ticks.index(cell.cell.column) for cell in cells],
                y=[summary.value or 0.0 for summary in summaries],
                deviation=[s.deviation for s in summaries if s.deviation is not None],
            )
        )
    return lines


def _heat_map(title: str, cell: CellResult) -> Part:
    counts = np.asarray(cell.trials[0].counts)
    classes = [str(label) for label in range(counts.shape[1])]
    return title, lambda axes: draw_heat_map(axes, counts, classes, device="party")
