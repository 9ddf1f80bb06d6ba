"""moonfed-coordinator release …: list, show, deploy, widen, pause, resume and roll back released models."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from moonfed.command_line.programs import new_group, print_json
from moonfed.coordinator.cli.options import AllOption, AllowEmptyOption
from moonfed.transport.operator_options import FindEndpoint, JsonOption, operator_options

if TYPE_CHECKING:
    from moonfed.control.releases import Deployment

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
@operator_options
def list_releases(
    endpoint: FindEndpoint,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Only this release.", show_default=False)] = "",
    json: JsonOption = False,
) -> None:
    """List all versions of all releases.

    Example: moonfed-coordinator release list
    """
    from moonfed.client import Coordinator
    from moonfed.control.document import document
    from moonfed.coordinator.cli.format_release import release_lines
    from moonfed.coordinator.cli.layout import terminal_width

    with Coordinator(endpoint()) as client:
        found = client.releases(name)
    if json:
        print_json(document(found))
    else:
        typer.echo("\n".join(release_lines(found, terminal_width())))


@release_app.command()
@operator_options
def show(
    endpoint: FindEndpoint,
    name: NameArgument,
    version: Annotated[
        int | None, typer.Option(help="The version. Default: the newest.", min=1, show_default=False)
    ] = None,
    json: JsonOption = False,
) -> None:
    """Show one version of a release: its origin, accuracy, classes and variants.

    Example: moonfed-coordinator release show digits --version 3
    """
    from moonfed.client import Coordinator
    from moonfed.control.document import document
    from moonfed.coordinator.cli.format_release import release_details

    with Coordinator(endpoint()) as client:
        found = client.release(name, version=version)
    if json:
        print_json(document(found))
    else:
        typer.echo("\n".join(release_details(found)))


@release_app.command()
@operator_options
def deploy(
    endpoint: FindEndpoint,
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
    json: JsonOption = False,
) -> None:
    """Deploy a version to all devices, or some of them; each installs it unless it declines.

    --percent chooses devices in the same order for every version of a release.

    Example: moonfed-coordinator release deploy digits --version 3 --label site=berlin --percent 10
    """
    from moonfed.client import Coordinator
    from moonfed.labels import parse_labels

    with Coordinator(endpoint()) as client:
        found = client.deploy(
            name,
            version,
            percent=percent,
            labels=parse_labels(label or ()),
            trusted_labels=trusted_labels,
            variant=variant,
            max_drop=max_drop,
            allow_empty=allow_empty,
        )
    _report(found, json=json)


@release_app.command()
@operator_options
def widen(
    endpoint: FindEndpoint,
    name: NameArgument,
    percent: Annotated[float, typer.Option(help="Share of the devices, rounded up.")] = 100.0,
    allow_empty: AllowEmptyOption = False,
    json: JsonOption = False,
) -> None:
    """Widen a release's newest deployment; the devices chosen before stay chosen.

    Example: moonfed-coordinator release widen digits --percent 50
    """
    from moonfed.client import Coordinator

    with Coordinator(endpoint()) as client:
        found = client.widen(name, percent=percent, allow_empty=allow_empty)
    _report(found, json=json)


@release_app.command()
@operator_options
def pause(
    endpoint: FindEndpoint,
    name: NameArgument,
    json: JsonOption = False,
) -> None:
    """Pause a release's newest deployment: no further device begins to install it until `release resume`.

    Example: moonfed-coordinator release pause digits
    """
    from moonfed.client import Coordinator

    with Coordinator(endpoint()) as client:
        found = client.pause_deployment(name)
    _report(found, json=json)


@release_app.command()
@operator_options
def resume(
    endpoint: FindEndpoint,
    name: NameArgument,
    json: JsonOption = False,
) -> None:
    """Resume a release's newest deployment.

    Example: moonfed-coordinator release resume digits
    """
    from moonfed.client import Coordinator

    with Coordinator(endpoint()) as client:
        found = client.resume_deployment(name)
    _report(found, json=json)


@release_app.command("roll-back")
@operator_options
def roll_back(
    endpoint: FindEndpoint,
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
    json: JsonOption = False,
) -> None:
    """Roll back a release's newest deployment that is not rolled back yet: its devices return to what they had before.

    Repeat the command to roll back the deployment before it, too; --to names the version to return to instead.

    A device that had no version before the deployment is left without one; the command tells how many are.

    Example: moonfed-coordinator release roll-back digits --to 2
    """
    from moonfed.client import Coordinator
    from moonfed.control.releases import Deployment
    from moonfed.coordinator.cli.format_release import stranding, withdrawal
    from moonfed.v1 import control_pb2

    with Coordinator(endpoint()) as client:
        known = client.deployments(name)
        standing = [one for one in known if one.status != "rolled-back"]
        ending = _newer_than(to, standing) if to else standing[-1:]
        if ending and not yes:
            typer.confirm(f"{withdrawal(ending)}?", abort=True, err=True)
        # The number makes a repetition harmless: without it, a second attempt would roll back the one before.
        number = ending[-1].number if ending and not to else 0
        request = control_pb2.RollBackDeploymentRequest(name=name, number=number, to_version=to or 0)
        found = client.connection.ask(Deployment, "RollBackDeployment", request)
    if yes and found.status == "rolled-back" and found.stranded:
        typer.echo(f"warning: {stranding(found)}", err=True)
    _report(found, json=json)


def _newer_than(version: int, standing: Sequence[Deployment]) -> Sequence[Deployment]:
    """Return the deployments that are newer than the newest one of a version; none if the version has none."""
    kept = [place for place, one in enumerate(standing) if one.version == version]
    return standing[kept[-1] + 1 :] if kept else ()


@release_app.command()
@operator_options
def status(
    endpoint: FindEndpoint,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A release. Default: an overview of all.", show_default=False)
    ] = "",
    everything: AllOption = False,
    json: JsonOption = False,
) -> None:
    """Show the deployments of a release, and which device has which version; devices with problems first.

    A terminal shows one screen unless --all is given. If the output is not a terminal, every device has one line, with
    its whole reason.

    Example: moonfed-coordinator release status digits
    """
    from moonfed.client import Coordinator
    from moonfed.control.document import document
    from moonfed.coordinator.cli.format_release import deployment_lines, status_lines
    from moonfed.coordinator.cli.layout import terminal_width
    from moonfed.errors import NotFound

    width = terminal_width() if sys.stdout.isatty() and not everything else None
    with Coordinator(endpoint()) as client:
        known = client.deployments(name)
        devices = client.deployed_devices(name) if name else []
    if json:
        print_json(document({"deployments": known, "devices": devices} if name else known))
    elif not name:
        typer.echo("\n".join(deployment_lines(known, width)))
    elif not known:
        raise NotFound(f"release {name!r} was never deployed", field="release", value=name)
    else:
        typer.echo("\n".join(status_lines(known, devices, width)))


def _report(deployment: Deployment, *, json: bool) -> None:
    from moonfed.control.document import document
    from moonfed.coordinator.cli.format_release import deployment_line

    if json:
        print_json(document(deployment))
    else:
        typer.echo(deployment_line(deployment))
