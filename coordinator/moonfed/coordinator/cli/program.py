"""The program moonfed-coordinator: run a coordinator, or operate one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from moonfed.command_line import new_app, print_json, run_program
from moonfed.coordinator.cli.runs import run_app
from moonfed.operator import (
    DEFAULT_IDENTITY,
    DEFAULT_STATE,
    CoordinatorOption,
    IdentityOption,
    InsecureOption,
    JsonOption,
    TrustOption,
)

if TYPE_CHECKING:
    from moonfed.coordinator.server import Ports

PROGRAM = "moonfed-coordinator"
HELP = """Coordinates federated learning: selects devices for rounds and aggregates their updates.

\b
Example:
  moonfed-coordinator serve --host 0.0.0.0 --name coordinator.example.org
  moonfed-coordinator token create --uses 5
  moonfed-coordinator run start digits-bundle --rounds 10
"""
JOIN_HELP = """Join tokens, with which new devices enrol.

Example: moonfed-coordinator token create --uses 5
"""
DEVICE_HELP = """The devices of the fleet.

Example: moonfed-coordinator device list
"""

app = new_app(HELP)
token_app = typer.Typer(help=JOIN_HELP, no_args_is_help=True)
device_app = typer.Typer(help=DEVICE_HELP, no_args_is_help=True)
app.add_typer(run_app, name="run")
app.add_typer(token_app, name="token")
app.add_typer(device_app, name="device")


def main() -> None:
    """Run moonfed-coordinator."""
    run_program(app, PROGRAM, extra="coordinator")


@app.command()
def serve(
    state: Annotated[Path, typer.Option(help="State directory; created if absent.")] = DEFAULT_STATE,
    database: Annotated[
        str,
        typer.Option(
            help="PostgreSQL: postgresql://USER@HOST/NAME. Default: a file in --state.",
            envvar="MOONFED_DATABASE",
        ),
    ] = "",
    blobs: Annotated[
        str,
        typer.Option(help="Object store: s3://BUCKET/PREFIX. Default: files in --state.", envvar="MOONFED_BLOBS"),
    ] = "",
    disk_budget: Annotated[
        str,
        typer.Option(
            metavar="SIZE",
            help="Limit for --state, such as 100GB, beyond which uploads are rejected. Default: none.",
        ),
    ] = "",
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0: all addresses.")] = "127.0.0.1",
    fleet_port: Annotated[int, typer.Option(help="Port for devices and operators; 0: any free one.")] = 7443,
    enrolment_port: Annotated[int, typer.Option(help="Port for enrolment; 0: any free one.")] = 7444,
    name: Annotated[
        list[str] | None,
        typer.Option(help="DNS name of this machine for devices; repeatable, the first goes into join tokens."),
    ] = None,
    certificate_days: Annotated[
        float, typer.Option(help="Validity of a device's certificate in days; devices renew it.")
    ] = 90.0,
    insecure: Annotated[bool, typer.Option("--insecure", help="Plaintext, for devices on this machine only.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the ports as one line of JSON.")] = False,
) -> None:
    """Run the coordinator until it is stopped; a later start resumes.

    Example: moonfed-coordinator serve --host 0.0.0.0 --name coordinator.example.org
    """
    import logging

    from moonfed.coordinator.server import ServeSettings
    from moonfed.coordinator.server import serve as run_server
    from moonfed.sizes import parse_size

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    for library in ("aiobotocore", "botocore"):  # they would log where they found credentials
        logging.getLogger(library).setLevel(logging.WARNING)
    settings = ServeSettings(
        state=state,
        database=database,
        blobs=blobs,
        disk_budget=parse_size("disk-budget", disk_budget, "100GB") if disk_budget else None,
        host=host,
        fleet_port=fleet_port,
        enrolment_port=enrolment_port,
        names=tuple(name or ()),
        certificate_days=certificate_days,
        insecure=insecure,
    )
    run_server(settings, lambda ports: _print_ready(state, host, ports, json))


@token_app.command("create")
def create_token(
    uses: Annotated[int, typer.Option(help="Number of devices that may enrol with it.", min=1, max=1_000_000)] = 1,
    valid_hours: Annotated[float, typer.Option(help="Validity in hours.")] = 24.0,
    trust: TrustOption = None,
    identity: IdentityOption = DEFAULT_IDENTITY,
    insecure: InsecureOption = False,
    coordinator: CoordinatorOption = None,
    json: JsonOption = False,
) -> None:
    """Create a join token and print it.

    It contains your trust file: devices that enrol with it run bundles that its keys have signed.

    Example: moonfed-coordinator token create --uses 5 --valid-hours 48 --trust engineer.json
    """
    from dataclasses import replace

    from moonfed.coordinator.cli.control_client import connect
    from moonfed.coordinator.cli.format import moment
    from moonfed.coordinator.pki.enrolment import MAX_VALID_SECONDS
    from moonfed.errors import InvalidInput
    from moonfed.join_token import parse_token
    from moonfed.signing.key_files import default_directory, ensure_keys, read_trust
    from moonfed.v1 import control_pb2

    given = read_trust(trust) if trust else None
    if not 0 < valid_hours <= MAX_VALID_SECONDS / 3600:
        raise InvalidInput(f"valid_hours is {valid_hours}; it must be above 0 and at most {MAX_VALID_SECONDS / 3600:g}")
    with connect(identity, insecure=insecure, address=coordinator) as console:
        request = control_pb2.CreateTokenRequest(uses=uses, valid_seconds=valid_hours * 3600)
        reply = console.ask(console.control.CreateToken, request)
    chain = given or ensure_keys(default_directory(), lambda told: typer.echo(f"{PROGRAM}: {told}", err=True))
    token = str(replace(parse_token(reply.token), trust=chain.verify()))
    if json:
        print_json({"token": token, "expires": reply.expires})
        return
    typer.echo(token)
    typer.echo(f"valid for {uses} {'device' if uses == 1 else 'devices'} until {moment(reply.expires)}", err=True)


@device_app.command("list")
def list_devices(
    identity: IdentityOption = DEFAULT_IDENTITY,
    insecure: InsecureOption = False,
    coordinator: CoordinatorOption = None,
    json: JsonOption = False,
) -> None:
    """List the enrolled devices, and which of them are online.

    Example: moonfed-coordinator device list
    """
    from moonfed.coordinator.cli.control_client import connect
    from moonfed.coordinator.cli.devices import device_lines
    from moonfed.coordinator.cli.format import device_document
    from moonfed.v1 import control_pb2

    with connect(identity, insecure=insecure, address=coordinator) as console:
        devices = console.ask(console.control.ListDevices, control_pb2.ListDevicesRequest()).devices
    if json:
        print_json([device_document(device) for device in devices])
        return
    typer.echo("\n".join(device_lines(devices)))


def _print_ready(state: Path, host: str, ports: Ports, json: bool) -> None:
    if json:
        document = {"fleet_port": ports.fleet, "enrolment_port": ports.enrolment, "state": str(state)}
        print_json(document | {"identity": str(state / "operator")})
        return
    enrolment = f", new devices at {host}:{ports.enrolment}" if ports.enrolment else ", without TLS"
    print(f"moonfed-coordinator serves {state}: devices at {host}:{ports.fleet}{enrolment}", flush=True)
