"""The command `moonfed-experiments reproduce`: reproduce the papers' tables and figures."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from moonfed.command_line.programs import print_json
from moonfed.errors import InvalidInput
from moonfed.experiments.fleet.simulate_command import explain_interrupt
from moonfed.experiments.papers.recipe import Recipe
from moonfed.validate import require_whole

if TYPE_CHECKING:
    from moonfed.experiments.fleet.engine import EngineSettings
    from moonfed.experiments.fleet.results import SimulationResult
    from moonfed.experiments.papers.progress import TrialsBar
    from moonfed.experiments.papers.reproduce_options import Options
    from moonfed.experiments.papers.runner import ReproductionContext
    from moonfed.experiments.simulation import Simulation


def reproduce_command(
    name: str | None = typer.Argument(None, help="A recipe; --list shows them.", metavar="RECIPE"),
    list_recipes: bool = typer.Option(False, "--list", help="List the recipes."),
    run_all: bool = typer.Option(False, "--all", help="Run every recipe, one after the other."),
    output: Path | None = typer.Option(
        None, "--output", help="Directory for RECIPE.md, .png, .jsonl and the simulations."
    ),
    data: Path | None = typer.Option(None, "--data", help="Folder with the data sets' files."),
    dataset: str = typer.Option("", "--dataset", help="Run only this data set of the recipe."),
    methods: str = typer.Option("", "--methods", help="Run only these methods of the recipe, such as fedavg,moon."),
    rounds: int | None = typer.Option(None, "--rounds", help="Rounds. Default: the paper's."),
    seeds: int | None = typer.Option(
        None, "--seeds", help="Trials, with seeds 0, 1, … Default: 3, as in MOON's table 1; with --quick, 1."
    ),
    no_augment: bool = typer.Option(False, "--no-augment", help="Train without augmentation."),
    quick: bool = typer.Option(
        False,
        "--quick",
        help="Run a small version in a minute: digits (with --data, part of CIFAR-10), few parties and rounds.",
    ),
    tune: bool = typer.Option(False, "--tune", help="Try the paper's grid for each tuned setting; keep the best."),
    engine: str = typer.Option("processes", "--engine", help="processes, or ray."),
    workers: int | None = typer.Option(None, "--workers", help="Parties trained at a time. Default: one per core."),
    device: str = typer.Option("cpu", "--device", metavar="cpu|cuda", help="Train on the CPU or on a CUDA GPU."),
    as_json: bool = typer.Option(False, "--json", help="Print the result as JSON."),
) -> None:
    """Reproduce a table or figure of the papers, and report the paper's numbers next to ours.

    Recipes with the same --output share simulations; the same command resumes an interrupted one.

    Example: moonfed-experiments reproduce moon-table-1 --dataset cifar10 --data data --rounds 20 --output results
    """
    from moonfed.experiments.papers.catalogue import RECIPES, find_recipe
    from moonfed.experiments.papers.reproduce_options import Options

    if list_recipes:
        _list(list(RECIPES.values()), as_json)
        return
    if run_all and name is not None:
        raise InvalidInput(field="recipe", value=name, rest=", and --all is given too; give only one of them")
    if not run_all and name is None:
        raise InvalidInput(
            "recipe is not given; name one that --list shows, or use --all for every recipe", field="recipe"
        )
    recipes = [find_recipe(name)] if name else list(RECIPES.values())
    if output is None:
        raise InvalidInput("output is not given; it must be a directory", field="output")
    options = Options(
        output=output,
        data=data,
        dataset=dataset,
        methods=tuple(part.strip() for part in methods.split(",") if part.strip()),
        rounds=_count("rounds", rounds),
        seeds=_count("seeds", seeds),
        augmentation=not no_augment,
        quick=quick,
        tune=tune,
    )
    _reproduce(recipes, options, engine, workers, device, as_json)


def _list(recipes: Sequence[Recipe], as_json: bool) -> None:
    if as_json:
        print_json(
            [
                {
                    "name": recipe.name,
                    "title": recipe.title,
                    "source": recipe.source,
                    "datasets": recipe.datasets,
                    "methods": recipe.methods,
                }
                for recipe in recipes
            ]
        )
        return
    width = max(len(recipe.name) for recipe in recipes)
    for recipe in recipes:
        typer.echo(f"{recipe.name:{width}}  {recipe.title} ({', '.join(recipe.datasets)})")


def _count(name: str, value: int | None) -> int:
    """Check a number of rounds or seeds; 0 if none is given."""
    if value is not None:
        require_whole(name, value, 1)
    return value or 0


def _reproduce(
    recipes: Sequence[Recipe], options: Options, engine: str, workers: int | None, device: str, as_json: bool
) -> None:
    """Run the recipes; of several, skip those that do not fit the options, with a message."""
    from moonfed.experiments.papers.progress import trials_bar
    from moonfed.experiments.papers.reproduce_options import choose
    from moonfed.experiments.papers.runner import count_trials, reproduce

    settings = _engine_settings(engine, workers, device)
    fitting = []
    for recipe in recipes:
        try:
            choose(recipe, options)
        except InvalidInput as error:
            if len(recipes) == 1:
                raise
            typer.echo(f"skipping {recipe.name}: {error}", err=True)
            continue
        fitting.append(recipe)
    for recipe in fitting:
        started = time.monotonic()
        typer.echo(f"{recipe.name}: {recipe.title}", err=True)
        with explain_interrupt(), trials_bar(count_trials(recipe, options)) as bar:
            files = reproduce(recipe, _context(options, settings, bar))
        seconds = time.monotonic() - started
        if as_json:
            paths = {"report": str(files.report), "picture": str(files.picture), "rows": str(files.rows)}
            print_json({"recipe": recipe.name, **paths, "seconds": round(seconds, 1)})
        else:
            typer.echo(f"{files.report} ({seconds:.0f} s)")


def _engine_settings(engine: str, workers: int | None, device: str) -> EngineSettings:
    from moonfed.experiments.fleet.engine import EngineSettings

    settings = EngineSettings(kind=engine, device=device)  # type: ignore[arg-type] # both are checked
    return settings if workers is None else replace(settings, workers=workers)


def _context(options: Options, settings: EngineSettings, bar: TrialsBar) -> ReproductionContext:
    from moonfed.experiments.environment import describe_environment
    from moonfed.experiments.fleet.run import run_simulation
    from moonfed.experiments.papers.runner import ReproductionContext

    def run(simulation: Simulation, output: Path) -> SimulationResult:
        return run_simulation(simulation, output, data=options.data, engine=settings, progress=bar.show)

    hardware = str(describe_environment(settings.device, settings.workers))
    return ReproductionContext(options=options, run=run, hardware=hardware, say=bar.say)
