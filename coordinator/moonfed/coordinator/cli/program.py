"""The program moonfed-coordinator: run a coordinator, or operate one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from moonfed.command_line.log_options import LogFormatOption, LogLevelOption, OtlpOption
from moonfed.command_line.programs import new_app, print_json, run_program
from moonfed.coordinator.cli.audit import audit
from moonfed.coordinator.cli.console import console, console_password
from moonfed.coordinator.cli.device_admin import device_app
from moonfed.coordinator.cli.device_history import history
from moonfed.coordinator.cli.device_list import list_devices
from moonfed.coordinator.cli.operators import operator_app
from moonfed.coordinator.cli.privacy import privacy_app
from moonfed.coordinator.cli.releases import release_app
from moonfed.coordinator.cli.runs import run_app
from moonfed.coordinator.cli.tokens import token_app
from moonfed.transport.operator_options import DEFAULT_STATE
from moonfed.version import RELEASE

if TYPE_CHECKING:
    from moonfed.coordinator.server import Ports

PROGRAM = "moonfed-coordinator"
HELP = """Coordinate federated learning: serve a fleet of devices, and manage its runs, devices and operators.

\b
Example:
  moonfed-coordinator serve --host 0.0.0.0 --name coordinator.example.org
  moonfed-coordinator token create --uses 5
  moonfed-coordinator run start digits-bundle --rounds 10
"""

app = new_app(HELP)
device_app.command("list")(list_devices)
device_app.command()(history)
app.add_typer(run_app, name="run")
app.add_typer(privacy_app, name="privacy")
app.add_typer(release_app, name="release")
app.add_typer(token_app, name="token")
app.add_typer(device_app, name="device")
app.add_typer(operator_app, name="operator")
app.command()(audit)
app.command()(console)
app.command("console-password")(console_password)


def main() -> None:
    """Run moonfed-coordinator."""
    of_console = sys.argv[1:2] in (["console"], ["console-password"])
    run_program(app, PROGRAM, extra="console" if of_console else "coordinator")


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
    i_have_a_backup: Annotated[
        bool, typer.Option("--i-have-a-backup", help="Permit this release to migrate the PostgreSQL database.")
    ] = False,
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
        typer.Option(
            metavar="HOST",
            help="DNS name by which devices reach this machine; repeatable. Join tokens contain the first.",
        ),
    ] = None,
    certificate_days: Annotated[
        float, typer.Option(help="Validity of devices' certificates in days; devices renew them.")
    ] = 90.0,
    webhook: Annotated[
        str,
        typer.Option(
            metavar="URL",
            help="Address notified when a run ends or fails, a round is abandoned, or a release is rolled back.",
            envvar="MOONFED_WEBHOOK",
        ),
    ] = "",
    webhook_secret: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File with the secret that signs these events.")
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Serve without TLS; only to programs on this machine.")
    ] = False,
    metrics_port: Annotated[
        int | None, typer.Option(help="Port for Prometheus' scrapes, without TLS; 0: any free one. Default: none.")
    ] = None,
    metrics_host: Annotated[str, typer.Option(help="Address to serve metrics on.")] = "127.0.0.1",
    json: Annotated[bool, typer.Option("--json", help="Print the ports as one line of JSON.")] = False,
    log_format: LogFormatOption = "text",
    log_level: LogLevelOption = "info",
    otlp_endpoint: OtlpOption = "",
) -> None:
    """Run the coordinator until it is stopped; a later start resumes.

    Example: moonfed-coordinator serve --host 0.0.0.0 --name coordinator.example.org --metrics-port 9464
    """
    import logging

    from moonfed.coordinator.server import ServeSettings
    from moonfed.coordinator.server import serve as run_server
    from moonfed.coordinator.webhooks.receiver import read_receiver
    from moonfed.observability.logs import configure_logs
    from moonfed.sizes import parse_size

    configure_logs(log_format, log_level)
    for library in ("alembic", "aiobotocore", "botocore"):  # the latter would log where they found credentials
        logging.getLogger(library).setLevel(logging.WARNING)
    settings = ServeSettings(
        state=state,
        database=database,
        blobs=blobs,
        backed_up=i_have_a_backup,
        disk_budget=parse_size("disk-budget", disk_budget, "100GB") if disk_budget else None,
        host=host,
        fleet_port=fleet_port,
        enrolment_port=enrolment_port,
        names=tuple(name or ()),
        certificate_days=certificate_days,
        insecure=insecure,
        otlp_endpoint=otlp_endpoint,
        metrics_port=metrics_port,
        metrics_host=metrics_host,
        webhook=read_receiver(webhook, webhook_secret) if webhook or webhook_secret else None,
    )
    run_server(settings, lambda ports: _print_ready(state, host, ports, json))


def _print_ready(state: Path, host: str, ports: Ports, json: bool) -> None:
    if json:
        document = {"fleet_port": ports.fleet, "enrolment_port": ports.enrolment, "state": str(state)}
        document |= {"metrics_port": ports.metrics} if ports.metrics else {}
        print_json(document | {"identity": str(state / "operator")})
        return
    enrolment = f", new devices at {host}:{ports.enrolment}" if ports.enrolment else ", without TLS"
    print(f"moonfed-coordinator {RELEASE} serves {state}: devices at {host}:{ports.fleet}{enrolment}", flush=True)
