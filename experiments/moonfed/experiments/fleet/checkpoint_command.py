"""The command `moonfed-experiments checkpoint`: an unfinished simulation in one small file."""

from __future__ import annotations

from pathlib import Path

import typer

from moonfed.command_line.programs import print_json
from moonfed.formatting import count


def checkpoint_command(
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
