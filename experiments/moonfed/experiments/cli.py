"""The program moonfed-experiments."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import typer

from moonfed.command_line import new_app, print_json, run_program
from moonfed.experiments.fleet.checkpoint_command import checkpoint_command
from moonfed.experiments.fleet.simulate_command import simulate_command
from moonfed.experiments.papers.reproduce_command import reproduce_command

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
        help="digits, cifar10, cifar100, fashion-mnist, mnist, tiny-imagenet, breast-cancer, wine or digits-features",
        metavar="DATASET",
    ),
    output: Path = typer.Option(..., "--output", help="Directory for device-1.npz …, test.npz and partition.json."),
    data: Path | None = typer.Option(None, "--data", help="Folder with the data set's files."),
    download: bool = typer.Option(False, "--download", help="Let torchvision download the files into --data."),
    kind: str = typer.Option(
        "dirichlet",
        "--partition",
        help="dirichlet (label skew), dirichlet-moon (MOON's own draw), dirichlet-equal or -mix (one size), or iid.",
    ),
    devices: int = typer.Option(10, "--devices", help="Number of devices."),
    beta: float = typer.Option(0.5, "--beta", help="Dirichlet concentration; smaller is more uneven."),
    seed: int = typer.Option(0, "--seed", help="Seed of the draw."),
    as_json: bool = typer.Option(False, "--json", help="Print the counts as JSON."),
) -> None:
    """Split a data set over devices: one .npz per device and one for the test set.

    Example: moonfed-experiments partition digits --devices 5 --beta 0.3 --output parts
    """
    from moonfed.experiments.datasets import load_dataset
    from moonfed.experiments.partition import PartitionSettings, write_partition

    settings = PartitionSettings(kind=kind, devices=devices, beta=beta, seed=seed)  # type: ignore[arg-type] # checked
    loaded = load_dataset(dataset, data, download=download)
    counts = write_partition(loaded, settings, output)
    if as_json:
        print_json({"output": str(output), "classes": list(loaded.classes), "counts": counts.tolist()})
        return
    for number, row in enumerate(counts, start=1):
        typer.echo(f"{output / f'device-{number}.npz'}: {row.sum():6d} samples, by class {' '.join(map(str, row))}")
    typer.echo(f"{output / 'test.npz'}: {len(loaded.test_labels)} samples")


@app.command()
def demo(
    output: Path = typer.Option(Path("build/demo"), "--output", help="Directory for everything the demo makes."),
    seed: int = typer.Option(7, "--seed", help="Seed of partition, weights and training."),
) -> None:
    """Train digits on five devices of this machine with MOON over TLS, and compare with each device alone.

    Example: moonfed-experiments demo --output build/demo
    """
    from moonfed.experiments.demo import DemoSettings, run_demo

    run_demo(DemoSettings(output=output, seed=seed))


app.command("simulate")(simulate_command)
app.command("checkpoint")(checkpoint_command)
app.command("reproduce")(reproduce_command)


def main() -> NoReturn:
    """Run the program."""
    run_program(app, "moonfed-experiments", extra="experiments")
