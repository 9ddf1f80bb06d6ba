"""The command `moonfed-experiments simulate`: a federation of virtual parties on this machine, or on a Ray cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from moonfed.command_line.log_options import LogFormatOption, LogLevelOption
from moonfed.command_line.programs import print_json
from moonfed.data.formats import METAVAR
from moonfed.formatting import count
from moonfed.observability.logs import MESSAGE, configure_logs

if TYPE_CHECKING:
    from moonfed.bundle.files import Bundle
    from moonfed.experiments.fleet.results import SimulationResult
    from moonfed.experiments.fleet.run import SimulationProgress
    from moonfed.experiments.simulation import Simulation


def simulate_command(
    recipe: Path | None = typer.Argument(
        None,
        help="A TOML file; see examples/. Not needed with --bundle.",
        metavar="RECIPE.toml",
        exists=True,
        dir_okay=False,
    ),
    output: Path = typer.Option(..., "--output", help="Directory of the simulation; an interrupted one is resumed."),
    data: Path | None = typer.Option(
        None, "--data", metavar=METAVAR, help="Your own samples; with a recipe's data set, the folder of its files."
    ),
    bundle: Path | None = typer.Option(
        None, "--bundle", help="Simulate runs of this bundle; a recipe then has the settings of `run start`."
    ),
    parties: int | None = typer.Option(None, "--parties", help="Number of parties, between which --data is split."),
    beta: float | None = typer.Option(None, "--beta", help="Dirichlet concentration; smaller is more uneven."),
    by: str = typer.Option("", "--by", metavar="COLUMN", help="For a table: each value of this column is a party."),
    target: str = typer.Option("", "--target", metavar="COLUMN", help="For a table: the column with the labels."),
    checkpoint: Path | None = typer.Option(
        None, "--checkpoint", help="Resume this checkpoint, unless --output already contains the simulation."
    ),
    trust: Path | None = typer.Option(
        None, "--trust", metavar="FILE", help="The engineer's trust file. Default: your own."
    ),
    changes: list[str] = typer.Option(
        [], "--set", metavar="KEY=VALUE",
        help="Override a key: rounds=3, mu=1 (a method's setting), server.server_momentum=0.7; mu= removes it.",
    ),
    sweeps: list[str] = typer.Option(
        [], "--sweep", metavar="KEY=A,B,C",
        help="Simulate each value, and with several --sweep each combination, in a directory of its own.",
    ),
    engine: str = typer.Option(
        "processes", "--engine",
        help="processes on this machine, or ray (cluster at RAY_ADDRESS; --output on a shared file system).",
    ),
    workers: int | None = typer.Option(None, "--workers", help="Parties trained at a time. Default: one per core."),
    device: str = typer.Option("cpu", "--device", metavar="cpu|cuda", help="Train on the CPU or on a CUDA GPU."),
    exports: list[str] = typer.Option(
        [], "--export", metavar="TRACKER=TARGET",
        help="Also write the result to a tracker, as `run export` does: csv=FILE.csv|DIR, parquet=FILE.parquet|DIR, "
        "tensorboard=DIR, mlflow=URI or wandb=PROJECT.",
    ),
    as_json: bool = typer.Option(False, "--json", help="Print the result as JSON."),
    log_format: LogFormatOption = "text",
    log_level: LogLevelOption = "warning",
) -> None:  # fmt: skip
    """Train virtual parties through a real coordinator in this process, and score every global model.

    In --output: results.jsonl with a line for each round, summary.json, a picture of the task's metric such as
    accuracy.png, model.safetensors, the bundle, and the coordinator's and the parties' state. The same command resumes
    an interrupted simulation, even after a kill.
    --export also works for a simulation that has finished; with --sweep, each is a run of its own.
    With --sweep, comparison.json and comparison.png compare all of them, as `compare` does.

    Example: moonfed-experiments simulate examples/digits-moon.toml --set rounds=5 --output build/digits-moon

    Example: moonfed-experiments simulate --bundle churn-bundle --data customers.csv --parties 200 --beta 0.5
    --set cohort=10% --set dropouts=0.1 --output build/churn

    Example: moonfed-experiments simulate examples/digits-moon.toml --sweep mu=1,5,10 --sweep seed=1,2 --output build/mu
    """
    from moonfed.errors import InvalidInput
    from moonfed.experiments.fleet.compare import directory_of, grid
    from moonfed.experiments.fleet.engine import EngineSettings
    from moonfed.experiments.fleet.export import export_result, read_exports, target_of
    from moonfed.experiments.fleet.plot import draw_result
    from moonfed.experiments.fleet.run import run_simulation
    from moonfed.experiments.group import read_names

    configure_logs(log_format, log_level, MESSAGE)
    if sweeps and checkpoint:
        raise InvalidInput(field="checkpoint", value=str(checkpoint), rest="; with --sweep it must not be given")
    trackers = read_exports(exports)
    named = {"target": target, "parties": parties, "beta": beta, "by": by}
    options = [f"{key}={value}" for key, value in named.items() if value not in (None, "")]
    settings = EngineSettings(kind=engine, device=device)  # type: ignore[arg-type] # both are checked
    if workers is not None:
        settings = replace(settings, workers=workers)
    combinations = grid(sweeps)
    chosen = []  # all checked before the first is simulated
    for combination in combinations:
        simulation, opened = _read([*changes, *options, *combination], recipe, bundle)
        if simulation.by and data:
            simulation = simulation.with_parties(len(read_names(data, simulation.by)))
        chosen.append((simulation, opened))
    for number, (combination, (simulation, opened)) in enumerate(zip(combinations, chosen, strict=True), 1):
        place = f"{number}/{len(combinations)} {', '.join(combination)}: " if sweeps else ""
        with explain_interrupt(), _progress_bar(place) as progress:
            result = run_simulation(
                simulation,
                output / directory_of(combination) if sweeps else output,
                data=data,
                bundle=opened,
                checkpoint=checkpoint,
                engine=settings,
                progress=progress,
                trust=trust,
            )
        draw_result(result)
        for kind, target in trackers:
            where = directory_of(combination)
            name = where if sweeps else result.simulation.name
            export_result(result, kind, target_of(kind, target, where) if sweeps else target, name)
        if not sweeps:
            _print_outcome(result, as_json)
    if sweeps:
        compare([output / directory_of(combination) for combination in combinations], output, as_json=as_json)


def compare(directories: Sequence[Path], output: Path | None, *, as_json: bool) -> None:
    """Print a table of finished simulations; write comparison.json and comparison.png into `output`, if any."""
    import json

    from moonfed.experiments.fleet.compare import draw, read_outcomes, table

    outcomes = read_outcomes(directories)
    documents = [outcome.to_document() for outcome in outcomes]
    if output:
        output.mkdir(parents=True, exist_ok=True)
        (output / "comparison.json").write_text(json.dumps(documents, indent=1) + "\n")
        draw(outcomes, output / "comparison.png")
    if as_json:
        print_json({"simulations": documents})
    else:
        typer.echo(table(outcomes))


def _read(changes: list[str], recipe: Path | None, bundle: Path | None) -> tuple[Simulation, Bundle | None]:
    """Read the recipe, and the bundle if there is one."""
    from moonfed.bundle.files import read_bundle
    from moonfed.errors import InvalidInput
    from moonfed.experiments.simulation import from_document, read_simulation

    opened = read_bundle(bundle) if bundle else None
    if recipe:
        return read_simulation(recipe, changes, opened), opened
    if opened is None:
        raise InvalidInput("recipe is missing; name a recipe, --bundle, or both")
    return from_document({"name": opened.manifest.name}, changes, opened), opened


@contextmanager
def explain_interrupt() -> Iterator[None]:
    """Explain, on an interrupt, that the work so far is kept."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt("the same command resumes it") from None


@contextmanager
def _progress_bar(place: str = "") -> Iterator[Callable[[SimulationProgress], None]]:
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
            found = progress.score
            score = "" if found is None else f", {found.metric.name} {found.score:.4g}"
            bar.update(task, completed=progress.fraction, description=place + progress.sentence + score)

        yield show


def _print_outcome(result: SimulationResult, as_json: bool) -> None:
    import json

    summary = json.loads(result.layout.summary.read_text())
    if as_json:
        print_json({"output": str(result.output), **summary})
    elif result.parties:
        typer.echo(
            f"{result.simulation.name}: {len(result.parties)} parties alone, {result.metric.name} "
            f"{result.score:.4f} ± {result.spread:.4f}, trained for {result.seconds:.0f} s; see {result.output}"
        )
    else:
        spent = summary.get("privacy")
        privacy = f"epsilon {spent['epsilon']:.3g} at delta {spent['delta']:g}, " if spent else ""
        typer.echo(
            f"{result.simulation.name}: {count(len(result.rounds), 'round')}, {result.metric.name} {result.score:.4f}, "
            f"{privacy}trained for {result.seconds:.0f} s; see {result.output}"
        )
