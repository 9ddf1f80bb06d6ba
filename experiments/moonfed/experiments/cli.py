"""The program moonfed-experiments."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

import typer

from moonfed.command_line.log_options import LogFormatOption, LogLevelOption
from moonfed.command_line.programs import new_app, print_json, run_program
from moonfed.data.formats import IGNORE_FOLDER_HELP, METAVAR, find_kind
from moonfed.experiments.fleet.simulate_command import compare, simulate_command
from moonfed.experiments.papers.reproduce_command import reproduce_command
from moonfed.formatting import count
from moonfed.observability.logs import MESSAGE, configure_logs

HELP = """Research with moonfed: virtual fleets, the papers' tables and figures, and a demonstration.

\b
Example:
  moonfed-experiments partition digits --devices 3 --beta 0.3 --output parts
  moonfed-experiments simulate examples/digits-moon.toml --output digits-moon
"""

app = new_app(HELP)


@app.command("partition")
def partition_command(
    dataset: str = typer.Argument(
        ...,
        help="Your own data, or digits, cifar10, cifar100, fashion-mnist, mnist, tiny-imagenet, breast-cancer, wine, "
        "digits-features, diabetes, digit-pairs or digit-anomalies.",
        metavar=f"{METAVAR}|NAME",
    ),
    output: Path = typer.Option(..., "--output", help="Directory for device-1 …, test and partition.json."),
    target: str = typer.Option("", "--target", metavar="COLUMN", help="For a table: the column with the targets."),
    columns: str = typer.Option("", "--columns", metavar="COLUMNS.json", help="For a table: its description."),
    task: str = typer.Option("", "--task", help="Your own data's. Default: that of --columns, or classification."),
    input_text: str = typer.Option(
        "", "--input", metavar="HxWxC|features:N|series:LxC|tokens:L",
        help="For module:callable: the shape of one raw sample.",
    ),
    classes: str = typer.Option(
        "", "--classes", help="For module:callable or a .npz file: class names, or their number."
    ),
    values: str = typer.Option("", "--values", help="Likewise, names of values."),
    horizon: str = typer.Option("", "--horizon", help="Likewise, steps of a forecast."),
    vocabulary: str = typer.Option("", "--vocabulary", help="Likewise, the file of the tokens' vocabulary."),
    ignore_folder: list[str] = typer.Option(None, "--ignore-folder", metavar="NAME", help=IGNORE_FOLDER_HELP),
    data: Path | None = typer.Option(None, "--data", help="Folder with the data set's files."),
    download: bool = typer.Option(False, "--download", help="Let torchvision download the files into --data."),
    kind: str | None = typer.Option(
        None,
        "--partition",
        help="dirichlet (label skew; the default), dirichlet-moon (MOON's own draw), dirichlet-equal or "
        "dirichlet-mix (devices of equal size), dirichlet-sizes (only their sizes vary), or iid.",
    ),
    devices: int | None = typer.Option(None, "--devices", help="Number of devices. Default: 10."),
    beta: float | None = typer.Option(
        None, "--beta", help="Dirichlet concentration; smaller is more uneven. Default: 0.5."
    ),
    seed: int | None = typer.Option(None, "--seed", help="Seed of the partition. Default: 0."),
    by: str = typer.Option("", "--by", metavar="COLUMN", help="Each value of this column, or array, is a device."),
    as_json: bool = typer.Option(False, "--json", help="Print the result as JSON."),
) -> None:  # fmt: skip
    """Split a data set among devices, and write a test set: its own, or every fifth sample of every class.

    Values are split by tenths, as if those were classes; other targets need dirichlet-sizes or iid.

    Your own data stay in their format: a table becomes device-1.csv (or .parquet), test.csv and columns.json, a folder
    of images device-1/ and test/. Everything else becomes device-1.npz and test.npz.

    \b
    Examples:
      moonfed-experiments partition digits --devices 5 --beta 0.3 --output parts
      moonfed-experiments partition customers.csv --target churn --devices 5 --output parts
      moonfed-experiments partition patients.csv --target ill --by hospital --output parts
    """  # noqa: D301
    from moonfed.experiments.datasets import LOADERS, load_dataset
    from moonfed.experiments.own_data import OwnData, require_none, usual_task
    from moonfed.experiments.own_partition import partition_own_data
    from moonfed.experiments.partition import PartitionSettings, write_partition

    chosen = {"kind": kind, "devices": devices, "beta": beta, "seed": seed}
    given: dict[str, Any] = {field: value for field, value in chosen.items() if value is not None}
    if by:
        options = {"partition" if field == "kind" else field: str(value) for field, value in given.items()}
        require_none(options, "a split by column")
    settings = PartitionSettings(**given)
    own = {"target": target, "columns": columns, "input": input_text, "classes": classes}
    own |= {"values": values, "horizon": horizon, "vocabulary": vocabulary}
    if dataset not in LOADERS and find_kind(dataset) is not None:
        own_data = OwnData(
            text=dataset, task=task or usual_task(columns), ignored_folders=tuple(ignore_folder or ()), **own
        )
        written = partition_own_data(own_data, settings, output, by)
    else:
        require_none({**own, "by": by, "ignore-folder": ", ".join(ignore_folder or ())}, f"data set {dataset!r}")
        written = write_partition(load_dataset(dataset, data, download=download), settings, output)
    if as_json:
        print_json({"output": str(output), "classes": list(written.classes), "counts": written.counts.tolist()})
        return
    numbered = all(name.isdecimal() for name in written.classes)
    for path, row in zip(written.devices, written.counts, strict=True):
        by_class = [str(n) if numbered else f"{name} {n}" for name, n in zip(written.classes, row, strict=True)]
        groups = f", by {written.groups} {(' ' if numbered else ', ').join(by_class)}" if written.groups else ""
        typer.echo(f"{path}: {row.sum():6d} samples{groups}")
    typer.echo(f"{written.test}: {count(written.tested, 'sample')}")


@app.command()
def demo(
    output: Path = typer.Option(Path("build/demo"), "--output", help="Output directory of the demo."),
    seed: int = typer.Option(7, "--seed", help="Seed of partition, weights and training."),
    log_format: LogFormatOption = "text",
    log_level: LogLevelOption = "info",
) -> None:
    """Train digits with MOON on five devices of this machine, over TLS, and compare with each device alone.

    The programs' logs are in OUTPUT/logs.

    Example: moonfed-experiments demo --output build/demo
    """
    from moonfed.experiments.demo import DemoSettings, run_demo

    configure_logs(log_format, log_level, MESSAGE)
    run_demo(DemoSettings(output=output, seed=seed, log_format=log_format, log_level=log_level))


@app.command("new")
def new_command(
    name: Path = typer.Argument(..., metavar="NAME", help="The project's directory, which is created."),
) -> None:
    """Create a project: model, data loader, recipe, and a test that passes.

    Example: moonfed-experiments new churn
    """
    from moonfed.experiments.new_project import write_project

    for path in write_project(name):
        typer.echo(str(path))


app.command("simulate")(simulate_command)


@app.command("compare")
def compare_command(
    directories: list[Path] = typer.Argument(..., help="Each the --output of a simulation.", metavar="DIRECTORY..."),
    output: Path | None = typer.Option(None, "--output", help="Directory for comparison.json and comparison.png."),
    as_json: bool = typer.Option(False, "--json", help="Print the result as JSON."),
) -> None:
    """Compare finished simulations: the keys in which they differ, accuracies, rounds, traffic and time.

    Example: moonfed-experiments compare build/fedavg build/moon --output build/comparison
    """
    compare(directories, output, as_json=as_json)


@app.command()
def checkpoint(
    directory: Path = typer.Argument(..., help="The --output of a simulation.", metavar="DIRECTORY"),
    output: Path = typer.Option(..., "--output", help="The file to write, such as moon.tar.zst."),
    as_json: bool = typer.Option(False, "--json", help="Print the result as JSON."),
) -> None:
    """Save an unfinished simulation, running or not, so that another machine can resume it.

    The file leaves out the samples, the scored models of past rounds, and the work of the open round, which is
    repeated. Resume it with simulate --checkpoint, the same recipe and the same data set.

    Example: moonfed-experiments checkpoint build/digits-moon --output digits-moon.tar.zst
    """
    from moonfed.experiments.fleet.checkpoint import save_checkpoint

    saved = save_checkpoint(directory, output)
    if as_json:
        print_json({"file": str(saved.file), "rounds": saved.rounds, "bytes": saved.size})
    else:
        typer.echo(f"{saved.file}: {count(saved.rounds, 'round')}, {saved.size / 1e6:.1f} MB")


app.command("reproduce")(reproduce_command)


def main() -> NoReturn:
    """Run the program."""
    run_program(app, "moonfed-experiments", extra="experiments")
