"""moonfed-coordinator device …: show, revoke, remove, rename and label a device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from moonfed.command_line.programs import new_group, print_json
from moonfed.labels import INFERENCE_ONLY
from moonfed.transport.operator_options import FindEndpoint, JsonOption, operator_options

if TYPE_CHECKING:
    from moonfed.control.devices import Certificate, Device

HELP = """List, show, label, rename, revoke and remove devices; see their history.

Example: moonfed-coordinator device list
"""

device_app = new_group(HELP)
FORMATTED = frozenset({"memory", "accelerator", "cuda", "threads", "torch", "jetpack", "system", INFERENCE_ONLY})
UNKNOWN = "-"  # a device that has never connected
DeviceArgument = Annotated[str, typer.Argument(metavar="DEVICE", help="The device's name.")]


@device_app.command()
@operator_options
def show(
    endpoint: FindEndpoint,
    device: DeviceArgument,
    json: JsonOption = False,
) -> None:
    """Show a device: status, labels, certificates and platform.

    Example: moonfed-coordinator device show cam-7
    """
    from moonfed.client import Coordinator

    with Coordinator(endpoint()) as client:
        found = client.device(device)
    _report(found, "\n".join(device_details(found)), json=json)


@device_app.command()
@operator_options
def revoke(
    endpoint: FindEndpoint,
    device: DeviceArgument,
    json: JsonOption = False,
) -> None:
    """Reject all certificates of a device and end its connections, for example after its key has leaked.

    The device keeps its name. It can return only with a token from `token create --device`.

    Example: moonfed-coordinator device revoke cam-7
    """
    from moonfed.client import Coordinator

    with Coordinator(endpoint()) as client:
        found = client.revoke_device(device)
    advice = f"revoked {device}; it can return with: moonfed-coordinator token create --device {device}"
    _report(found, advice, json=json)


@device_app.command()
@operator_options
def remove(
    endpoint: FindEndpoint,
    device: DeviceArgument,
    yes: Annotated[bool, typer.Option("--yes", help="Skip the confirmation.")] = False,
    json: JsonOption = False,
) -> None:
    """Remove a device for good: its certificates are rejected, and its name is free.

    Runs keep the updates that they have counted.

    Example: moonfed-coordinator device remove cam-7 --yes
    """
    from moonfed.client import Coordinator

    with Coordinator(endpoint()) as client:
        if not yes:
            found = client.device(device)
            typer.confirm(f"Remove device {found.device}?", abort=True, err=True)
        client.remove_device(device)
    if json:
        print_json({"removed": device})
    else:
        typer.echo(f"removed {device}")


@device_app.command()
@operator_options
def rename(
    endpoint: FindEndpoint,
    device: DeviceArgument,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The new name.")],
    json: JsonOption = False,
) -> None:
    """Rename a device, which automatically fetches a certificate with its new name.

    Its update in progress is lost.

    Example: moonfed-coordinator device rename cam-7 gate-north
    """
    from moonfed.client import Coordinator

    with Coordinator(endpoint()) as client:
        found = client.rename_device(device, name)
    _report(found, f"renamed {device} to {name}; it renews its certificate at its next call", json=json)


@device_app.command()
@operator_options
def label(
    endpoint: FindEndpoint,
    device: DeviceArgument,
    labels: Annotated[
        list[str] | None, typer.Argument(metavar="NAME=VALUE", help="Labels to set.", show_default=False)
    ] = None,
    remove: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Remove the label that an operator set under this name; repeatable.",
            show_default=False,
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Set or remove labels of a device, which override those that it reports itself.

    `run start --trusted-labels` considers no other labels.

    Example: moonfed-coordinator device label cam-7 site=berlin tier=gold --remove camera
    """
    from moonfed.client import Coordinator
    from moonfed.errors import InvalidInput
    from moonfed.labels import parse_labels, write_labels

    if not labels and not remove:
        raise InvalidInput("labels are missing; give NAME=VALUE to set one, or --remove NAME")
    chosen = parse_labels(labels or ())
    with Coordinator(endpoint()) as client:
        found = client.label_device(device, chosen, remove=remove or ())
    _report(
        found, f"{device} has these labels of operators: {write_labels(found.operator_labels) or 'none'}", json=json
    )


def _report(device: Device, text: str, *, json: bool) -> None:
    from moonfed.control.document import document

    if json:
        print_json(document(device))
    else:
        typer.echo(text)


def device_details(device: Device) -> list[str]:
    """Format one device: a line for each fact."""
    from moonfed.coordinator.cli.devices import activity, last_result
    from moonfed.coordinator.cli.format import moment
    from moonfed.coordinator.devices.shared_identities import describe_shared
    from moonfed.labels import write_labels

    own = {name: value for name, value in device.labels.items() if name not in device.operator_labels}
    facts = {
        "device": device.device,
        "status": _status(device),
        "enrolled": moment(device.enrolled),
        "last seen": "now" if device.online else moment(device.last_seen),
        "operator's labels": write_labels(device.operator_labels) or "-",
        "own labels": write_labels(own) or "-",
        "activity": activity(device),
        "rounds": f"{device.rounds:,}",
        "last result": last_result(device),
        "release": device.release or "-",
    }
    facts |= {"shared": describe_shared(device.device, device.shared_by)} if device.shared_by else {}
    facts |= dict(hardware_rows(device.platform))
    facts |= {name: value for name, value in sorted(device.platform.items()) if name not in FORMATTED}
    width = max(map(len, facts))
    lines = [f"{name.ljust(width)}  {value}" for name, value in facts.items()]
    return [*lines, *(f"{'certificate'.ljust(width)}  {_certificate_line(one)}" for one in device.certificates)]


def _status(device: Device) -> str:
    from moonfed.coordinator.cli.format import moment

    if device.revoked:
        return f"revoked on {moment(device.revoked)}"
    return "online" if device.online else "offline"


def _certificate_line(certificate: Certificate) -> str:
    from moonfed.coordinator.cli.format import moment

    if certificate.rejected:
        return f"{certificate.serial}, {certificate.reason} on {moment(certificate.rejected)}"
    return f"{certificate.serial}, valid until {moment(certificate.expires)}"


def hardware_rows(platform: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return names and values."""
    jetpack = platform.get("jetpack")
    return [
        ("hardware", _hardware(platform)),
        ("memory", _memory(platform)),
        ("trains on", _trains_on(platform)),
        ("torch", platform.get("torch") or UNKNOWN),
        ("system", f"JetPack {jetpack}" if jetpack else platform.get("system") or UNKNOWN),
    ]


def _hardware(platform: Mapping[str, str]) -> str:
    """Format the training hardware: the GPU if the device trains on it, else the processor."""
    processor = platform.get("processor") or platform.get("architecture") or UNKNOWN
    return platform.get("gpu") or processor if platform.get("accelerator") == "cuda" else processor


def _memory(platform: Mapping[str, str]) -> str:
    """Format a size given in bytes."""
    memory = platform.get("memory", "")
    return f"{int(memory) / 1e9:.1f} GB" if memory.isdecimal() else UNKNOWN


def _trains_on(platform: Mapping[str, str]) -> str:
    if INFERENCE_ONLY in platform:
        return "nothing: it is for inference only"
    kind = platform.get("accelerator") or UNKNOWN
    detail = platform.get("cuda") if kind == "cuda" else platform.get("threads")
    if not detail:
        return kind
    return f"cuda {detail}" if kind == "cuda" else f"{kind}, {detail} thread{'s' if detail != '1' else ''}"
