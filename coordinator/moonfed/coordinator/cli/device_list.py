"""The command `device list`."""

from __future__ import annotations

from typing import Annotated

import typer

from moonfed.command_line.programs import print_json
from moonfed.coordinator.cli.options import AllOption
from moonfed.transport.operator_options import FindEndpoint, JsonOption, operator_options


@operator_options
def list_devices(
    endpoint: FindEndpoint,
    label: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Only devices with this label; repeatable.", show_default=False),
    ] = None,
    online: Annotated[bool, typer.Option("--online", help="Only devices that are online.")] = False,
    ineligible: Annotated[
        str, typer.Option(metavar="RUN", help="Only devices that are ineligible for this run, with the reason.")
    ] = "",
    everything: AllOption = False,
    json: JsonOption = False,
) -> None:
    """List devices, with their last contact, activity, rounds and last result, and totals.

    `rounds` counts the committed rounds that had the device's update as input, even if the reducer left it out.

    Example: moonfed-coordinator device list --online --label site=berlin
    """
    from moonfed.client import Coordinator
    from moonfed.control.document import document
    from moonfed.coordinator.cli.devices import device_lines
    from moonfed.coordinator.cli.layout import terminal_width
    from moonfed.labels import parse_labels

    labels = parse_labels(label or ())
    with Coordinator(endpoint()) as client:
        devices = client.devices(labels=labels, online=online, ineligible=ineligible)
    if json:
        print_json(document(devices))
    else:
        typer.echo("\n".join(device_lines(devices, None if everything else terminal_width())))
