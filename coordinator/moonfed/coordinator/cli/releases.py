"""moonfed-coordinator release …: list, show, deploy, widen, pause, resume and roll back released models."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from moonfed.command_line.programs import new_group, print_json
from moonfed.coordinator.cli.options import AllOption, AllowEmptyOption
from moonfed.transport.operator_options import (
    DEFAULT_IDENTITY,
    CoordinatorOption,
    IdentityOption,
    InsecureOption,
    JsonOption,
)

if TYPE_CHECKING:
    from moonfed.v1 import control_pb2

HELP = """Deploy releases, which are versions of named models, to devices.

`moonfed-export release create` makes a version from a run.

\b
Example:
  moonfed-export release create digits-run --name digits --data test.npz
  moonfed-coordinator release deploy digits --version 1 --percent 10
  moonfed-coordinator release status digits
"""
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The release's name.")]
YesOption = Annotated[bool, typer.Option("--yes", help="Skip the confirmation.")]

release_app = new_group(HELP)


@release_app.command("list")
def list_releases(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Only this release.", show_default=False)] = "",
    identity: IdentityOption = DEFAULT_IDENTITY,
    insecure: InsecureOption = False,
    coordinator: CoordinatorOption = None,
    json: JsonOption = False,
) -> None:
    """List all versions of all releases.

    Example: moonfed-coordinator release list
    """
    from moonfed.coordinator.cli.control_client import connect
    from moonfed.coordinator.cli.format_release import release_lines
    from moonfed.coordinator.cli.layout import terminal_width
    from moonfed.coordinator.documents.releases import release_document
    from moonfed.v1 import control_pb2

    with connect(identity, insecure=insecure, address=coordinator) as console:
        found = console.ask(console.control.ListReleases, control_pb2.ListReleasesRequest(name=name)).releases
    if json:
        print_json([release_document(release) for release in found])
    else:
        typer.echo("\n".join(release_lines(found, terminal_width())))


@release_app.command()
def show(
    name: NameArgument,
    version: Annotated[
        int | None, typer.Option(help="The version. Default: the newest.", min=1, show_default=False)
    ] = None,
    identity: IdentityOption = DEFAULT_IDENTITY,
    insecure: InsecureOption = False,
    coordinator: CoordinatorOption = None,
    json: JsonOption = False,
) -> None:
    """Show one version of a release: its origin, accuracy, classes and variants.

    Example: moonfed-coordinator release show digits --version 3
    """
    from moonfed.coordinator.cli.control_client import connect
    from moonfed.coordinator.cli.format_release import release_details
    from moonfed.coordinator.documents.releases import release_document
    from moonfed.v1 import control_pb2

    with connect(identity, insecure=insecure, address=coordinator) as console:
        request = control_pb2.GetReleaseRequest(name=name, version=version or 0)
        found = console.ask(console.control.GetRelease, request)
    if json:
        print_json(release_document(found))
    else:
        typer.echo("\n".join(release_details(found)))


@release_app.command()
def deploy(
    name: NameArgument,
    version: Annotated[int, typer.Option(help="The version.", min=1)],
    label: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Only devices with this label; repeatable.", show_default=False),
    ] = None,
    trusted_labels: Annotated[
        bool, typer.Option("--trusted-labels", help="Match --label only against labels that operators have set.")
    ] = False,
    percent: Annotated[float, typer.Option(help="Percentage of the matching devices, rounded up.")] = 100.0,
    variant: Annotated[str, typer.Option(metavar="NAME", help="The variant, such as float16.")] = "float32",
    max_drop: Annotated[
        float,
        typer.Option(
            metavar="POINTS",
            help="How far a device's holdout accuracy may fall below its current version's; a device declines only if "
            "the drop is also significant.",
        ),
    ] = 1.0,
    allow_empty: AllowEmptyOption = False,
    identity: IdentityOption = DEFAULT_IDENTITY,
    insecure: InsecureOption = False,
    coordinator: CoordinatorOption = None,
    json: JsonOption = False,
) -> None:
    """Deploy a version to all devices, or some of them; each installs it unless it declines.

    --percent chooses devices in the same order for every version of a release.

    Example: moonfed-coordinator release deploy digits --version 3 --label site=berlin --percent 10
    """
    from moonfed.coordinator.cli.control_client import connect
    from moonfed.labels import parse_labels
    from moonfed.v1 import control_pb2

    request = control_pb2.DeployReleaseRequest(
        name=name,
        version=version,
        variant=variant,
        labels=parse_labels(label or ()),
        trusted_labels=trusted_labels,
        percent=percent,
        max_drop=max_drop,
        allow_empty=allow_empty,
    )
    with connect(identity, insecure=insecure, address=coordinator) as console:
        found = console.ask_once(console.control.DeployRelease, request)
    _report(found, json=json)


@release_app.command()
def widen(
    name: NameArgument,
    percent: Annotated[float, typer.Option(help="Share of the devices, rounded up.")] = 100.0,
    allow_empty: AllowEmptyOption = False,
    identity: IdentityOption = DEFAULT_IDENTITY,
    insecure: InsecureOption = False,
    coordinator: CoordinatorOption = None,
    json: JsonOption = False,
) -> None:
    """Widen a release's newest deployment; the devices chosen before stay chosen.

    Example: moonfed-coordinator release widen digits --percent 50
    """
    from moonfed.coordinator.cli.control_client import connect
    from moonfed.v1 import control_pb2

    with connect(identity, insecure=insecure, address=coordinator) as console:
        request = control_pb2.WidenDeploymentRequest(name=name, percent=percent, allow_empty=allow_empty)
        found = console.ask(console.control.WidenDeployment, request)
    _report(found, json=json)


@release_app.command()
def pause(
    name: NameArgument,
    identity: IdentityOption = DEFAULT_IDENTITY,
    insecure: InsecureOption = False,
    coordinator: CoordinatorOption = None,
    json: JsonOption = False,
) -> None:
    """Pause a release's newest deployment: no further device begins to install it until `release resume`.

    Example: moonfed-coordinator release pause digits
    """
    from moonfed.coordinator.cli.control_client import connect
    from moonfed.v1 import control_pb2

    with connect(identity, insecure=insecure, address=coordinator) as console:
        found = console.ask(console.control.PauseDeployment, control_pb2.PauseDeploymentRequest(name=name))
    _report(found, json=json)


@release_app.command()
def resume(
    name: NameArgument,
    identity: IdentityOption = DEFAULT_IDENTITY,
    insecure: InsecureOption = False,
    coordinator: CoordinatorOption = None,
    json: JsonOption = False,
) -> None:
    """Resume a release's newest deployment.

    Example: moonfed-coordinator release resume digits
    """
    from moonfed.coordinator.cli.control_client import connect
    from moonfed.v1 import control_pb2

    with connect(identity, insecure=insecure, address=coordinator) as console:
        found = console.ask(console.control.ResumeDeployment, control_pb2.ResumeDeploymentRequest(name=name))
    _report(found, json=json)


@release_app.command("roll-back")
def roll_back(
    name: NameArgument,
    to: Annotated[
        int | None,
        typer.Option(
            metavar="VERSION",
            help="Roll back every deployment newer than this version's, however many; a repetition changes nothing.",
            min=1,
            show_default=False,
        ),
    ] = None,
    yes: YesOption = False,
    identity: IdentityOption = DEFAULT_IDENTITY,
    insecure: InsecureOption = False,
    coordinator: CoordinatorOption = None,
    json: JsonOption = False,
) -> None:
    """Roll back a release's newest deployment that is not rolled back yet: its devices return to what they had before.

    Repeat the command to roll back the deployment before it, too; --to names the version to return to instead.

    A device that had no version before the deployment is left without one; the command tells how many are.

    Example: moonfed-coordinator release roll-back digits --to 2
    """
    from moonfed.coordinator.cli.control_client import connect
    from moonfed.coordinator.cli.format_release import stranding, withdrawal
    from moonfed.v1 import control_pb2

    with connect(identity, insecure=insecure, address=coordinator) as console:
        known = console.ask(console.control.ListDeployments, control_pb2.ListDeploymentsRequest(name=name)).deployments
        standing = [one for one in known if one.status != control_pb2.DEPLOYMENT_STATUS_ROLLED_BACK]
        ending = _newer_than(to, standing) if to else standing[-1:]
        if ending and not yes:
            typer.confirm(f"{withdrawal(ending)}?", abort=True, err=True)
        # The number makes a repetition harmless: without it, a second attempt would roll back the one before.
        number = ending[-1].number if ending and not to else 0
        request = control_pb2.RollBackDeploymentRequest(name=name, number=number, to_version=to or 0)
        found = console.ask(console.control.RollBackDeployment, request)
    if yes and found.status == control_pb2.DEPLOYMENT_STATUS_ROLLED_BACK and found.stranded:
        typer.echo(f"warning: {stranding(found)}", err=True)
    _report(found, json=json)


def _newer_than(version: int, standing: Sequence[control_pb2.Deployment]) -> Sequence[control_pb2.Deployment]:
    """Return the deployments that are newer than the newest one of a version; none if the version has none."""
    kept = [place for place, one in enumerate(standing) if one.version == version]
    return standing[kept[-1] + 1 :] if kept else ()


@release_app.command()
def status(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A release. Default: an overview of all.", show_default=False)
    ] = "",
    everything: AllOption = False,
    identity: IdentityOption = DEFAULT_IDENTITY,
    insecure: InsecureOption = False,
    coordinator: CoordinatorOption = None,
    json: JsonOption = False,
) -> None:
    """Show the deployments of a release, and which device has which version; devices with problems first.

    A terminal shows one screen unless --all is given. If the output is not a terminal, every device has one line, with
    its whole reason.

    Example: moonfed-coordinator release status digits
    """
    from moonfed.coordinator.cli.control_client import connect
    from moonfed.coordinator.cli.format_release import deployment_lines, status_lines
    from moonfed.coordinator.cli.layout import terminal_width
    from moonfed.coordinator.documents.releases import deployed_device_document, deployment_document
    from moonfed.errors import NotFound
    from moonfed.v1 import control_pb2

    width = terminal_width() if sys.stdout.isatty() and not everything else None
    with connect(identity, insecure=insecure, address=coordinator) as console:
        known = console.ask(console.control.ListDeployments, control_pb2.ListDeploymentsRequest(name=name)).deployments
        devices = console.deployed_devices(name) if name else []
    if json:
        deployments = [deployment_document(deployment) for deployment in known]
        listed = [deployed_device_document(device) for device in devices]
        print_json({"deployments": deployments, "devices": listed} if name else deployments)
    elif not name:
        typer.echo("\n".join(deployment_lines(known, width)))
    elif not known:
        raise NotFound(f"release {name!r} was never deployed", field="release", value=name)
    else:
        typer.echo("\n".join(status_lines(known, devices, width)))


def _report(deployment: control_pb2.Deployment, *, json: bool) -> None:
    from moonfed.coordinator.cli.format_release import deployment_line
    from moonfed.coordinator.documents.releases import deployment_document

    if json:
        print_json(deployment_document(deployment))
    else:
        typer.echo(deployment_line(deployment))
