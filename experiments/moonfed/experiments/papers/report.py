"""A recipe's report as Markdown: the paper's numbers next to ours, and all deviations. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from moonfed.experiments.papers.deviations import Condition
from moonfed.experiments.papers.labels import column_label, dataset_label, panel_label, stands_in
from moonfed.experiments.papers.recipe import Cell, Recipe
from moonfed.experiments.papers.results import RATIO_DIGITS, PanelResult, Summary, summarise

OURS = "ours"  # the source of a recipe that is not from a paper


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """Facts that the numbers alone do not show. `data`: the set that replaces the paper's; empty if none does."""

    conditions: Sequence[Condition]
    untuned: Sequence[str] = ()  # settings that the paper tuned, at a value of our choice
    hardware: str = ""
    seconds: float = 0.0  # of all the trials' rounds together, reused ones included
    data: str = ""


def render(recipe: Recipe, results: Sequence[PanelResult], circumstances: Circumstances) -> str:
    """Render the whole report."""
    parts = [
        f"# {recipe.name}: {recipe.title}",
        _source(recipe),
        *_warning(recipe, circumstances),
        *_impossible(results, circumstances.data),
        *_findings(results, circumstances.data),
        *(part for result in results for part in _panel(result, circumstances.data)),
        f"![{recipe.title}]({recipe.name}.png)",
        *_how(recipe, circumstances),
        *_tuning(results, circumstances.data),
        *(["## Notes\n\n" + "\n".join(f"- {note}" for note in recipe.notes)] if recipe.notes else []),
    ]
    return "\n\n".join(parts) + "\n"


def _source(recipe: Recipe) -> str:
    if recipe.source == OURS:
        return "No paper has this; the numbers are moonfed's."
    return f"{recipe.source}. moonfed's numbers come first; the paper's follow in brackets, where it prints them."


def _warning(recipe: Recipe, circumstances: Circumstances) -> list[str]:
    """State the deviations of the runs before the first number."""
    deviations = [
        f"{condition.name} {condition.ours} instead of {condition.full}"
        + (f" ({condition.source})" if condition.source else "")
        for condition in circumstances.conditions
        if condition.deviates
    ]
    if circumstances.untuned:
        deviations.append(f"untuned: {', '.join(circumstances.untuned)}")
    if not deviations:
        return []
    what = "a full run" if recipe.source == OURS else "the paper's experiment"
    return [f"> **This is not {what}:** {'; '.join(deviations)}. The numbers cannot be compared as they stand."]


def _impossible(results: Sequence[PanelResult], data: str) -> list[str]:
    """Warn of methods that took less time than the one whose work they do, and more."""
    measured = [
        (result.panel.target, cell.cell, summarise(result, cell))
        for result in results
        if result.panel.measure == "ratio"
        for cell in result.cells
    ]
    found = [
        f"{cell.row}, {column_label(cell, data)}, {summary.text} of {reference}'s time"
        for reference, cell, summary in measured
        if summary.value is not None and round(summary.value, RATIO_DIGITS) < 1
    ]
    if not found:
        return []
    return [
        f"> **Impossible:** {'; '.join(found)}. A method that does the same work and more cannot take less time, so"
        " something else disturbed the rounds. Measure all of them again on an idle machine."
    ]


def _findings(results: Sequence[PanelResult], data: str) -> list[str]:
    """State in words how far a quick run reproduces the paper's ordering."""
    result = next((result for result in results if result.panel.measure == "accuracy"), None)
    if result is None or not data:
        return []
    columns = dict.fromkeys((cell.cell.dataset, cell.cell.column) for cell in result.cells)
    verdicts = [text for column in columns if (text := _leader(result, column))]
    if not verdicts:
        return []
    trials = max(len(cell.trials) for cell in result.cells)
    count = "one trial" if trials == 1 else f"{trials} trials"
    note = result.cells[0].cell.size.note
    return [
        f"**What this shows:** the recipe runs from end to end. {' '.join(verdicts)} With {count} on a small data set,"
        " a lead of a few points may be chance. This run does not show the result of a full one on the paper's data.",
        *([note] if note and data == "digits" else []),
    ]


def _leader(result: PanelResult, column: tuple[str, str]) -> str:
    """Say which of a column's rows leads here, and which in the paper; nothing where fewer than two can be compared."""
    cells = [cell for cell in result.cells if (cell.cell.dataset, cell.cell.column) == column]
    pairs = [(cell.cell.row, summarise(result, cell).value, cell.cell.paper) for cell in cells]
    known = [(row, ours, paper.value) for row, ours, paper in pairs if ours is not None and paper and paper.value]
    if len(known) < 2:
        return ""
    best, leader = max(known, key=lambda entry: entry[1]), max(known, key=lambda entry: entry[2])
    rows = "the rows below" if len(known) == len(cells) else "the rows whose number the paper prints"
    where = f"{column[1]}: of {rows}" if column[1] else f"Of {rows}"
    if best[2] == leader[2]:
        return f"{where}, {best[0]} leads with {best[1]:.1f} %, as in the paper."
    return (
        f"{where}, {best[0]} leads with {best[1]:.1f} %; in the paper it is {leader[0]}, which has"
        f" {leader[1]:.1f} % here. So this run does not show the paper's ordering."
    )


def _panel(result: PanelResult, data: str) -> list[str]:
    summaries = [(cell.cell, summarise(result, cell)) for cell in result.cells]
    columns = list(dict.fromkeys((cell.dataset, cell.column) for cell, _ in summaries))
    rows = list(dict.fromkeys(cell.row for cell, _ in summaries))
    first = {(cell.dataset, cell.column): cell for cell, _ in reversed(summaries)}
    fields = {(cell.row, cell.dataset, cell.column): _field(cell, summary, data) for cell, summary in summaries}
    table = [
        [result.panel.x, *(column_label(first[column], data) for column in columns)],
        ["---"] * (1 + len(columns)),
        *([row, *(fields.get((row, *column), "") for column in columns)] for row in rows),
    ]
    heading = panel_label(result.panel, data)
    datasets = {cell.dataset for cell, _ in summaries}
    if result.panel.title and all(cell.column for cell, _ in summaries):  # no column names the data set
        heading += f" ({', '.join(dataset_label(dataset, data) for dataset in datasets)})"
    return [f"## {heading}", "\n".join(f"| {' | '.join(line)} |" for line in table), *_paper_alone(summaries, data)]


def _field(cell: Cell, summary: Summary, data: str) -> str:
    """Format a number with the paper's in brackets, unless that is of another data set."""
    paper = f"({cell.paper.text})" if cell.paper and not stands_in(cell.dataset, data) else ""
    return f"{summary.text} {paper}".strip()


def _paper_alone(summaries: Sequence[tuple[Cell, Summary]], data: str) -> list[str]:
    """Put the paper's numbers into a separate sentence if they are for another data set than ours."""
    texts: dict[str, list[str]] = {}
    for cell, _ in summaries:
        if cell.paper and stands_in(cell.dataset, data):
            column = f", {cell.column}" if cell.column else ""
            texts.setdefault(dataset_label(cell.dataset), []).append(f"{cell.row}{column} {cell.paper.text}")
    return [f"The paper, on {title}: {'; '.join(found)}." for title, found in texts.items()]


def _how(recipe: Recipe, circumstances: Circumstances) -> list[str]:
    own = recipe.source == OURS
    head = ["| | here | full run |" if own else "| | here | paper |", "| --- | --- | --- |"]
    rows = [f"| {condition.name} | {condition.ours} | {condition.paper} |" for condition in circumstances.conditions]
    rows.append(f"| hardware | {circumstances.hardware} | |")
    if circumstances.seconds:
        rows.append(f"| time of all rounds | {_duration(circumstances.seconds)} | |")
    spread = (
        "± is the sample standard deviation over the trials; for SOLO and for samples per party it is the population's,"
        " over the parties of all trials."
    )
    return ["## How it was run", "\n".join([*head, *rows]), spread]


def _tuning(results: Sequence[PanelResult], data: str) -> list[str]:
    """List the best value where several were tried."""
    lines = []
    for result in results:
        for cell in result.cells:
            tuned = cell.trials[0].tuned
            if tuned is not None:
                grid = ", ".join(f"{value:g}" for value in cell.cell.grid)
                where = f"{cell.cell.row}, {column_label(cell.cell, data)}"
                lines.append(f"- {where}: {cell.cell.tuned} {tuned:g} of {grid}")
    return ["## Tuned\n\n" + "\n".join(dict.fromkeys(lines))] if lines else []


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
