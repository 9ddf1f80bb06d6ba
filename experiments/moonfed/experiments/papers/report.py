"""A recipe's report as Markdown: the paper's numbers beside ours, and everything that was done differently. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from moonfed.experiments.papers.deviations import Condition
from moonfed.experiments.papers.labels import column_label, dataset_label, panel_label
from moonfed.experiments.papers.recipe import Cell, Recipe
from moonfed.experiments.papers.results import PanelResult, Summary, summarise

OURS = "ours"  # the source of a recipe that is no paper's


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """What the numbers alone do not tell. `data` stands in for the paper's data set; empty if nothing does."""

    conditions: Sequence[Condition]
    hardware: str
    seconds: float  # of all the trials' rounds together, also of those that were reused
    data: str = ""


def render(recipe: Recipe, results: Sequence[PanelResult], circumstances: Circumstances) -> str:
    """The whole report."""
    parts = [
        f"# {recipe.name}: {recipe.title}",
        _source(recipe),
        *_warning(recipe, circumstances),
        *(part for result in results for part in _panel(result, circumstances.data)),
        f"![{recipe.title}]({recipe.name}.png)",
        *_how(recipe, circumstances),
        *_tuning(results),
        *(["## Notes\n\n" + "\n".join(f"- {note}" for note in recipe.notes)] if recipe.notes else []),
    ]
    return "\n\n".join(parts) + "\n"


def _source(recipe: Recipe) -> str:
    if recipe.source == OURS:
        return "No paper has this; the numbers are moonfed's."
    return f"{recipe.source}. moonfed's numbers come first; the paper's, where it prints one, follows in brackets."


def _warning(recipe: Recipe, circumstances: Circumstances) -> list[str]:
    """Said before the first number."""
    departures = [
        f"{condition.name} {condition.ours} instead of {condition.paper}"
        for condition in circumstances.conditions
        if condition.departs
    ]
    if not departures:
        return []
    what = "a full run" if recipe.source == OURS else "the paper's experiment"
    return [f"> **This is not {what}:** {'; '.join(departures)}. The numbers cannot be compared as they stand."]


def _panel(result: PanelResult, data: str) -> list[str]:
    summaries = [(cell.cell, summarise(result, cell)) for cell in result.cells]
    columns = list(dict.fromkeys((cell.dataset, cell.column) for cell, _ in summaries))
    rows = list(dict.fromkeys(cell.row for cell, _ in summaries))
    first = {(cell.dataset, cell.column): cell for cell, _ in reversed(summaries)}
    fields = {(cell.row, cell.dataset, cell.column): _field(cell, summary) for cell, summary in summaries}
    table = [
        [result.panel.x, *(column_label(first[column], data) for column in columns)],
        ["---"] * (1 + len(columns)),
        *([row, *(fields.get((row, *column), "") for column in columns)] for row in rows),
    ]
    heading = panel_label(result.panel, data)
    datasets = {cell.dataset for cell, _ in summaries}
    if result.panel.title and all(cell.column for cell, _ in summaries):  # no column tells the data set
        heading += f" ({', '.join(dataset_label(dataset, data) for dataset in datasets)})"
    return [f"## {heading}", "\n".join(f"| {' | '.join(line)} |" for line in table)]


def _field(cell: Cell, summary: Summary) -> str:
    return summary.text + (f" ({cell.paper.text})" if cell.paper else "")


def _how(recipe: Recipe, circumstances: Circumstances) -> list[str]:
    own = recipe.source == OURS
    head = ["| | here | full run |" if own else "| | here | paper |", "| --- | --- | --- |"]
    rows = [f"| {condition.name} | {condition.ours} | {condition.paper} |" for condition in circumstances.conditions]
    rows.append(f"| hardware | {circumstances.hardware} | |")
    if circumstances.seconds:
        rows.append(f"| time of all rounds | {_duration(circumstances.seconds)} | |")
    spread = (
        "± is the sample standard deviation over the trials, for SOLO over the parties of all trials; for samples per"
        " party, over the parties."
    )
    return ["## How it was run", "\n".join([*head, *rows]), spread]


def _tuning(results: Sequence[PanelResult]) -> list[str]:
    """Which value was best, where several were tried."""
    lines = []
    for result in results:
        for cell in result.cells:
            tuned = cell.trials[0].tuned
            if tuned is not None:
                grid = ", ".join(f"{value:g}" for value in cell.cell.grid)
                lines.append(f"- {cell.cell.row}, {column_label(cell.cell)}: {cell.cell.tuned} {tuned:g} of {grid}")
    return ["## Tuned\n\n" + "\n".join(dict.fromkeys(lines))] if lines else []


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
