"""The command `device list`."""

from __future__ import annotations

from typing import Annotated

import typer

from moonfed.command_line.programs import print_json
from moonfed.coordinator.cli.options import AllOption
from moonfed.transport.operator_options import (
    DEFAULT_IDENTITY,
    CoordinatorOption,
    IdentityOption,
    InsecureOption,
    JsonOption,
)


def list_devices(
    label: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Only devices with this label; repeatable.", show_default=False),
    ] = None,
    online: Annotated[bool, typer.Option("--online", help="Only devices that are online.")] = False,
    ineligible: Annotated[
        str, typer.Option(metavar="RUN", help="Only devices that are ineligible for this run, with the reason.")
    ] = "",
    everything: AllOption = False,
    identity: IdentityOption = DEFAULT_IDENTITY,
    insecure: InsecureOption = False,
    coordinator: CoordinatorOption = None,
    json: JsonOption = False,
) -> None:
    """List devices, with their last contact, activity, rounds and last result, and totals.

    `rounds` counts the committed rounds that had the device's update as input, even if the reducer left it out.

    Example: moonfed-coordinator device list --online --label site=berlin
    """
    from moonfed.coordinator.cli.control_client import connect
    from moonfed.coordinator.cli.devices import device_lines
    from moonfed.coordinator.cli.layout import terminal_width
    from moonfed.coordinator.documents.devices import device_document
    from moonfed.labels import parse_labels
    from moonfed.v1 import control_pb2

    query = control_pb2.ListDevicesRequest(labels=parse_labels(label or ()), online=online, ineligible=ineligible)
    with connect(identity, insecure=insecure, address=coordinator) as console:
        devices = console.devices(query)
    if json:
        print_json([device_document(device) for device in devices])
    else:
        typer.echo("\n".join(device_lines(devices, None if everything else terminal_width())))
