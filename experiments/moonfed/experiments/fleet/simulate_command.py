"""The command `moonfed-experiments simulate`: a federation of virtual parties on this machine, or on a Ray cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from moonfed.command_line import print_json

if TYPE_CHECKING:
    from moonfed.experiments.fleet.results import SimulationResult
    from moonfed.experiments.fleet.run import SimulationProgress


def simulate_command(
    recipe: Path = typer.Argument(
        ..., help="A TOML file; see examples/.", metavar="RECIPE.toml", exists=True, dir_okay=False
    ),
    output: Path = typer.Option(..., "--output", help="Directory of the simulation; an interrupted one is resumed."),
    data: Path | None = typer.Option(None, "--data", help="Folder with the data set's files."),
    checkpoint: Path | None = typer.Option(
        None, "--checkpoint", help="Resume this checkpoint, unless --output already contains the simulation."
    ),
    trust: Path | None = typer.Option(
        None, "--trust", metavar="FILE", help="The trust file of the engineer who signed the checkpoint's bundle."
    ),
    changes: list[str] = typer.Option(
        [], "--set", metavar="KEY=VALUE",
        help="Change a key: rounds=3, mu=1 (a method's setting), server.server_momentum=0.7; mu= removes it.",
    ),
    engine: str = typer.Option(
        "processes", "--engine",
        help="processes on this machine, or ray (cluster at RAY_ADDRESS; --output on a shared file system).",
    ),
    workers: int | None = typer.Option(None, "--workers", help="Parties trained at a time; by default one per core."),
    device: str = typer.Option("cpu", "--device", help="cpu or cuda."),
    as_json: bool = typer.Option(False, "--json", help="Print the result as JSON."),
) -> None:  # fmt: skip
    """Train virtual parties through a real coordinator in this process, and score every global model.

    In --output: results.jsonl with a line for each round, summary.json, accuracy.png, model.safetensors, the bundle,
    and the coordinator's and the parties' state. The same command resumes an interrupted simulation, even after a kill.

    Example: moonfed-experiments simulate examples/digits-moon.toml --set rounds=5 --output build/digits-moon
    """
    from moonfed.experiments.fleet.engine import EngineSettings
    from moonfed.experiments.fleet.plot import draw_result
    from moonfed.experiments.fleet.run import run_simulation
    from moonfed.experiments.simulation import read_simulation

    simulation = read_simulation(recipe, changes)
    settings = EngineSettings(kind=engine, device=device)  # type: ignore[arg-type] # both are checked
    if workers is not None:
        settings = replace(settings, workers=workers)
    with explain_interrupt(), _progress_bar() as progress:
        result = run_simulation(
            simulation, output, data=data, checkpoint=checkpoint, engine=settings, progress=progress, trust=trust
        )
    draw_result(result)
    _print_outcome(result, as_json)


@contextmanager
def explain_interrupt() -> Iterator[None]:
    """Explain, on an interrupt, that the work so far is kept."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt("the same command resumes") from None


@contextmanager
def _progress_bar() -> Iterator[Callable[[SimulationProgress], None]]:
    """Show a bar with the time left on standard error, if that is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    # Progress comes one party at a time: an estimate over a minute would jump.
    console = Console(stderr=True)
    bar = Progress(
        *columns, console=console, transient=True, speed_estimate_period=3600, disable=not console.is_terminal
    )
    with bar:
        task = bar.add_task("", total=1.0)

        def show(progress: SimulationProgress) -> None:
            accuracy = "" if progress.accuracy is None else f", accuracy {progress.accuracy:.3f}"
            bar.update(task, completed=progress.fraction, description=progress.sentence + accuracy)

        yield show


def _print_outcome(result: SimulationResult, as_json: bool) -> None:
    import json

    summary = json.loads(result.layout.summary.read_text())
    if as_json:
        print_json({"output": str(result.output), **summary})
    elif result.parties:
        typer.echo(
            f"{result.simulation.name}: {len(result.parties)} parties alone, accuracy {result.accuracy:.4f} ± "
            f"{result.spread:.4f}, trained for {result.seconds:.0f} s; see {result.output}"
        )
    else:
        typer.echo(
            f"{result.simulation.name}: {len(result.rounds)} rounds, accuracy {result.accuracy:.4f}, "
            f"trained for {result.seconds:.0f} s; see {result.output}"
        )
