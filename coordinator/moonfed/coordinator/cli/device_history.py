"""The command `device history`: a device's part in the rounds of all runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from moonfed.command_line.programs import print_json
from moonfed.transport.operator_options import FindEndpoint, JsonOption, operator_options

if TYPE_CHECKING:
    from moonfed.control.devices import DeviceResult

NEWEST = 20
HEADS = ("ended", "run", "round", "outcome", "training", "reason")


@operator_options
def history(
    endpoint: FindEndpoint,
    device: Annotated[str, typer.Argument(metavar="DEVICE", help="The device's name.")],
    newest: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=2**32 - 1,
            help="Number of newest results, at most 10,000. Default: 20; with --json, 10,000.",
            show_default=False,
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Show the outcome of a device's rounds in all runs, newest first.

    `training` is the time from the assignment to the first byte of the update. The newest 1,000 rounds of each run are
    kept.

    Example: moonfed-coordinator device history cam-7
    """
    from moonfed.client import Coordinator
    from moonfed.control.devices import DeviceResult
    from moonfed.control.document import document
    from moonfed.coordinator.cli.layout import terminal_width
    from moonfed.v1 import control_pb2

    last = (0 if json else NEWEST) if newest is None else newest
    with Coordinator(endpoint()) as client:
        request = control_pb2.ListDeviceHistoryRequest(device=device, last=last)
        results = client.connection.ask_all(DeviceResult, "ListDeviceHistory", request)
    if json:
        print_json(document(results))
    else:
        typer.echo("\n".join(history_lines(device, results, terminal_width())))


def history_lines(device: str, results: Sequence[DeviceResult], width: int) -> list[str]:
    """Format a table of a device's results, and the number of each outcome."""
    from collections import Counter

    from moonfed.coordinator.cli.layout import table, wrap
    from moonfed.formatting import count

    if not results:
        return [f"{device} has no finished rounds on record"]
    outcomes = Counter(result.outcome for result in results).most_common()
    summary = ", ".join(f"{number:,} {outcome}" for outcome, number in outcomes)
    return [
        *table(HEADS, [_row(result) for result in results], width),
        *wrap(f"{device} in {count(len(results), 'round')}: {summary}", width),
    ]


def _row(result: DeviceResult) -> list[str]:
    from moonfed.coordinator.cli.format import duration, moment

    attempt = f" attempt {result.attempt}" if result.attempt > 1 else ""
    training = duration(result.seconds) if result.seconds else "-"
    return [moment(result.time), result.run, f"{result.round}{attempt}", result.outcome, training, result.reason]
