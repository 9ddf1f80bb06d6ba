"""Execution of a recipe: its simulations, the lines of raw results, the report and the figure.

Simulations are in OUTPUT/simulations under their digests, so a recipe reuses another's finished simulations, and
resumes interrupted ones.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from moonfed.experiments.fleet.results import SimulationResult
from moonfed.experiments.papers.charts import draw_recipe
from moonfed.experiments.papers.deviations import conditions, untuned
from moonfed.experiments.papers.labels import column_label
from moonfed.experiments.papers.presets import DATA
from moonfed.experiments.papers.recipe import Cell, Panel, Recipe
from moonfed.experiments.papers.report import Circumstances, render
from moonfed.experiments.papers.reproduce_options import Options, choose
from moonfed.experiments.papers.results import CellResult, PanelResult, Trial, best_trials, final_accuracies
from moonfed.experiments.papers.to_simulation import simulation_of
from moonfed.experiments.partition import class_counts, partition
from moonfed.experiments.simulation import Simulation
from moonfed.files import write_durably

Run = Callable[[Simulation, Path], SimulationResult]
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reproduction:
    """The files that a recipe writes."""

    recipe: str
    report: Path
    picture: Path
    rows: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class ReproductionContext:
    """The context of a recipe's execution: options, the function that runs a simulation, hardware, and output."""

    options: Options
    run: Run
    hardware: str
    say: Say

    def simulations(self) -> Path:
        """Return the directory of the simulations."""
        return self.options.output / "simulations"

    def simulate(self, simulation: Simulation) -> SimulationResult:
        """Run a simulation, unless it has finished, and keep the files that a report may need.

        A hundred rounds' models of a ResNet-50 would fill 11 GB; of the parties' models, figure 2 shows the CNN's.
        """
        result = self.run(simulation, self.simulations() / simulation.digest[:16])
        spare = [result.layout.data, result.layout.coordinator]
        if simulation.model != "cnn":
            spare.append(result.layout.root / "parties")
        for directory in spare:
            shutil.rmtree(directory, ignore_errors=True)
        return result


def reproduce(recipe: Recipe, context: ReproductionContext) -> Reproduction:
    """Run a recipe and write NAME.jsonl, NAME.md and NAME.png into the output directory.

    Raises InvalidInput for options that the recipe does not have, before any work.
    """
    options = context.options
    chosen = choose(recipe, options)
    for cell in chosen.trained:
        simulation_of(cell, options, seed=0)  # rejects what cannot be simulated
    options.output.mkdir(parents=True, exist_ok=True)
    files = Reproduction(
        recipe=recipe.name,
        report=options.output / f"{recipe.name}.md",
        picture=options.output / f"{recipe.name}.png",
        rows=options.output / f"{recipe.name}.jsonl",
    )
    rows: list[dict[str, Any]] = []
    results = [_run_panel(chosen, panel, context, rows) for panel in chosen.panels]
    write_durably(files.rows, "".join(json.dumps(row) + "\n" for row in rows).encode())
    _draw(files.picture, chosen, results, context)
    circumstances = Circumstances(
        conditions=conditions(recipe, chosen.trained, options),
        untuned=untuned(chosen.trained, options),
        hardware=context.hardware,
        seconds=_total_seconds(rows),
        data=_stand_in(chosen, options),
    )
    write_durably(files.report, render(chosen, results, circumstances).encode())
    return files


def _run_panel(recipe: Recipe, panel: Panel, context: ReproductionContext, rows: list[dict[str, Any]]) -> PanelResult:
    options, results = context.options, []
    for cell in panel.cells:
        trials = []
        for trial, found in _trials(cell, context) if panel.trains else _counts(panel, cell, options):
            trials.append(trial)
            place = {"recipe": recipe.name, "panel": panel.title, "row": cell.row, "column": column_label(cell)}
            rows.extend(place | row for row in found)
        results.append(CellResult(cell=cell, trials=best_trials(cell, trials)))
    return PanelResult(panel=panel, cells=tuple(results))


def _counts(panel: Panel, cell: Cell, options: Options) -> Iterator[tuple[Trial, list[dict[str, Any]]]]:
    return _splits(cell, options) if panel.measure == "spread" else _test_set(cell)


def _test_set(cell: Cell) -> Iterator[tuple[Trial, list[dict[str, Any]]]]:
    """Yield the number of test samples, which are all in one place."""
    samples = DATA[cell.dataset].test_samples
    yield Trial(seed=0, counts=((samples,),)), [{"dataset": cell.dataset, "test_samples": samples}]


def _splits(cell: Cell, options: Options) -> Iterator[tuple[Trial, list[dict[str, Any]]]]:
    """Yield the split of the first trial, which the paper describes, of balanced classes as large as the data set's."""
    classes, samples = DATA[cell.dataset].classes, DATA[cell.dataset].samples_by_class
    labels = np.repeat(np.arange(classes), samples)
    settings = simulation_of(cell, Options(output=options.output), seed=0).partition_settings
    counts = class_counts(labels, partition(labels, settings), classes).tolist()
    rows = [
        {"dataset": cell.dataset, "seed": settings.seed, "party": f"party-{number}", "samples_by_class": row}
        for number, row in enumerate(counts, start=1)
    ]
    yield Trial(seed=settings.seed, counts=tuple(map(tuple, counts))), rows


def _trials(cell: Cell, context: ReproductionContext) -> Iterator[tuple[Trial, list[dict[str, Any]]]]:
    options = context.options
    for tuned in _tried(cell, options):
        for seed in options.seed_numbers:
            result = context.simulate(simulation_of(cell, options, seed=seed, tuned=tuned))
            trial = Trial(
                seed=seed,
                tuned=tuned,
                accuracy=tuple(entry.score for entry in result.rounds),
                seconds=tuple(entry.party_seconds for entry in result.rounds),
                traffic=tuple(entry.traffic for entry in result.rounds),
                parties=tuple(entry.score for entry in result.parties),
            )
            tried = "" if tuned is None else f", {cell.tuned} {tuned:g}"
            where = column_label(cell, result.simulation.dataset if options.quick else "")
            context.say(f"{cell.row}, {where}, seed {seed}{tried}: {100 * mean(final_accuracies(cell, [trial])):.1f} %")
            yield trial, list(_rows(cell, tuned, result))


def _total_seconds(rows: Sequence[dict[str, Any]]) -> float:
    """Add up the seconds of rounds, or of SOLO's parties; cells that share a simulation share its rounds."""
    timed = [row for row in rows if "seconds" in row]
    seconds = {(row["simulation"], row.get("round"), row.get("party")): float(row["seconds"]) for row in timed}
    return sum(seconds.values())


def count_trials(recipe: Recipe, options: Options) -> int:
    """Count the trials of a recipe's chosen cells; several may share a simulation."""
    trained = choose(recipe, options).trained
    return sum(len(_tried(cell, options)) for cell in trained) * len(options.seed_numbers)


def _tried(cell: Cell, options: Options) -> Sequence[float | None]:
    """Return the values of the tuned setting to try; None is the paper's best."""
    return cell.grid if options.tune and cell.grid else (None,)


def _rows(cell: Cell, tuned: float | None, result: SimulationResult) -> Iterator[dict[str, Any]]:
    """Yield a line for each round, for SOLO for each party."""
    simulation = result.simulation
    common = {
        "dataset": simulation.dataset,
        "method": simulation.method,
        "seed": simulation.run.seed,
        **({} if tuned is None else {cell.tuned: tuned}),
        "simulation": result.output.name,
    }
    for entry in result.rounds:
        measured = {"accuracy": entry.score, "loss": entry.loss, "seconds": entry.seconds}
        costs = {name: getattr(entry, name) for name in ("party_seconds", "sent_bytes", "received_bytes")}
        yield common | {"round": entry.round} | measured | costs
    for party in result.parties:
        yield common | {"party": party.party, "accuracy": party.score, "loss": party.loss, "seconds": party.seconds}


def _draw(path: Path, recipe: Recipe, results: Sequence[PanelResult], context: ReproductionContext) -> None:
    options = context.options
    if recipe.panels[0].chart != "t-sne":
        draw_recipe(path, recipe, results, data=_stand_in(recipe, options))
        return
    from moonfed.experiments.papers.embedding import draw_vectors

    cells = [cell for panel in recipe.panels for cell in panel.cells]
    found = [(cell.row, context.simulate(simulation_of(cell, options, seed=0))) for cell in cells]
    draw_vectors(path, recipe.title, found, options.data, samples=200 if options.quick else 1000)


def _stand_in(recipe: Recipe, options: Options) -> str:
    """Return the data set that a quick run trains on instead of the paper's."""
    replaced = any(not DATA[dataset].bundled for dataset in recipe.datasets)
    return options.quick_dataset if options.quick and recipe.trained and replaced else ""
