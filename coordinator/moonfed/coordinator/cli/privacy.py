"""moonfed-coordinator privacy …: what runs have spent of differential privacy."""

from __future__ import annotations

from typing import Annotated

import typer

from moonfed.command_line.programs import new_group, print_json
from moonfed.transport.operator_options import FindEndpoint, JsonOption, operator_options

HELP = """Show what runs have spent of differential privacy.

Example: moonfed-coordinator privacy show digits
"""

privacy_app = new_group(HELP)


@privacy_app.command()
@operator_options
def show(
    endpoint: FindEndpoint,
    run: Annotated[str, typer.Argument(metavar="RUN", help="All runs that have, or had, this name.")] = "",
    everything: Annotated[bool, typer.Option("--all", help="Compose all runs, deleted ones included.")] = False,
    delta: Annotated[
        float,
        typer.Option(help="The delta at which runs are composed. Default: the smallest of theirs.", show_default=False),
    ] = 0.0,
    json: JsonOption = False,
) -> None:
    """Show the releases of a run, or of all runs, and the epsilon of all of them together.

    The ledger outlives runs: those that were deleted are listed, too.

    Example: moonfed-coordinator privacy show --all --delta 1e-5
    """
    from moonfed.client import Coordinator
    from moonfed.control.document import document
    from moonfed.coordinator.cli.format_privacy import report_lines
    from moonfed.coordinator.cli.layout import terminal_width
    from moonfed.errors import InvalidInput

    if bool(run) == everything:
        raise InvalidInput("RUN and --all exclude each other; give one of them")
    with Coordinator(endpoint()) as client:
        report = client.privacy(run, delta=delta)
    if json:
        print_json(document(report))
    else:
        typer.echo("\n".join(report_lines(report, terminal_width())))
