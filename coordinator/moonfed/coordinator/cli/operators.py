"""moonfed-coordinator operator …: create, list and revoke operators."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from moonfed.command_line.programs import new_group, print_json
from moonfed.transport.operator_options import (
    DEFAULT_IDENTITY,
    CoordinatorOption,
    IdentityOption,
    InsecureOption,
    JsonOption,
)

if TYPE_CHECKING:
    from moonfed.v1 import control_pb2

HELP = """Create, list and revoke operators, who each have a role and certificates.

Example: moonfed-coordinator operator create ann --role engineer --output ann
"""

operator_app = new_group(HELP)
OperatorArgument = Annotated[str, typer.Argument(metavar="NAME", help="The operator's name.", show_default=False)]


@operator_app.command()
def create(
    name: OperatorArgument,
    role: Annotated[
        str,
        typer.Option(
            metavar="ROLE",
            help="viewer: read runs, models and devices; evaluator: also record metrics; engineer: also bundles, runs, "
            "releases and deployments; admin: also devices, tokens, operators and the audit trail.",
            show_default=False,
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(metavar="DIR", help="Directory for the identity; must not exist yet.", show_default=False),
    ],
    identity: IdentityOption = DEFAULT_IDENTITY,
    insecure: InsecureOption = False,
    coordinator: CoordinatorOption = None,
    json: JsonOption = False,
) -> None:
    """Create an operator, and write an identity for their machine.

    Whoever has this directory can act as the operator: copy it to the operator's machine, then delete it here.

    Example: moonfed-coordinator operator create ann --role engineer --output ann
    """
    from moonfed.coordinator.cli.control_client import connect
    from moonfed.coordinator.cli.format import moment
    from moonfed.errors import AlreadyExists
    from moonfed.files import new_directory
    from moonfed.transport.identity import (
        key_bytes,
        load_identity,
        new_key,
        read_certificate,
        require_name,
        save_identity,
        signing_request,
    )
    from moonfed.v1 import control_pb2

    require_name("operator", name)
    if output.exists():
        raise AlreadyExists(field="output", value=output, rest=", which exists; it must be a new directory")
    key = new_key()
    request = control_pb2.CreateOperatorRequest(operator=name, role=role, signing_request=signing_request(key, name))
    with connect(identity, insecure=insecure, address=coordinator) as console, new_directory(output) as directory:
        directory.chmod(0o700)
        reply = console.ask(console.control.CreateOperator, request)
        authority, address = load_identity(identity).ca, reply.address
        save_identity(directory, address=address, ca=authority, certificate=reply.certificate, key=key_bytes(key))
    made = read_certificate(reply.certificate)
    if json:
        print_json(
            {**_certificate_document(made.name, str(made.role), made.serial, made.expires), "identity": str(output)}
        )
        return
    typer.echo(f"{output} is the identity of operator {name} with the role {role}, until {moment(made.expires)}")


@operator_app.command("list")
def list_operators(
    identity: IdentityOption = DEFAULT_IDENTITY,
    insecure: InsecureOption = False,
    coordinator: CoordinatorOption = None,
    json: JsonOption = False,
) -> None:
    """List the operators' certificates.

    Example: moonfed-coordinator operator list
    """
    from moonfed.coordinator.cli.control_client import connect
    from moonfed.coordinator.cli.layout import table, terminal_width
    from moonfed.v1 import control_pb2

    with connect(identity, insecure=insecure, address=coordinator) as console:
        operators = console.ask(console.control.ListOperators, control_pb2.ListOperatorsRequest()).operators
    if json:
        print_json([operator_document(operator) for operator in operators])
        return
    rows = [
        [operator.operator, operator.role, _day(operator.created), operator.created_by or "-",
         _day(operator.expires), operator_status(operator)]
        for operator in operators
    ]  # fmt: skip
    typer.echo("\n".join(table(["operator", "role", "created", "by", "until", "status"], rows, terminal_width())))


@operator_app.command()
def revoke(
    name: OperatorArgument,
    identity: IdentityOption = DEFAULT_IDENTITY,
    insecure: InsecureOption = False,
    coordinator: CoordinatorOption = None,
    json: JsonOption = False,
) -> None:
    """Reject all certificates of an operator, and end their calls.

    Example: moonfed-coordinator operator revoke ann
    """
    from moonfed.coordinator.cli.control_client import connect
    from moonfed.v1 import control_pb2

    with connect(identity, insecure=insecure, address=coordinator) as console:
        # Not retried: a second attempt would find nothing left to revoke.
        reply = console.ask_once(console.control.RevokeOperator, control_pb2.RevokeOperatorRequest(operator=name))
    if json:
        print_json([operator_document(operator) for operator in reply.operators])
    elif reply.operators:
        certificates = ", ".join(operator.serial for operator in reply.operators)
        typer.echo(f"operator {name} is revoked; rejected certificates: {certificates}")
    else:
        typer.echo(f"operator {name} was already revoked; nothing has changed")


def operator_document(operator: control_pb2.Operator) -> dict[str, Any]:
    """Return an operator's certificate as JSON values."""
    from moonfed.formatting import iso_time

    return {
        **_certificate_document(operator.operator, operator.role, operator.serial, operator.expires),
        "created": iso_time(operator.created),
        "created_by": operator.created_by,
        "revoked": iso_time(operator.revoked),
        "status": operator_status(operator),
    }


def operator_status(operator: control_pb2.Operator) -> str:
    """Return the status of an operator's certificate as one word."""
    import time

    if operator.revoked:
        return "revoked"
    return "valid" if operator.expires > time.time() else "expired"


def _certificate_document(name: str, role: str, serial: str, expires: float) -> dict[str, Any]:
    from moonfed.formatting import iso_time

    return {"operator": name, "role": role, "serial": serial, "expires": iso_time(expires)}


def _day(seconds: float) -> str:
    from moonfed.coordinator.cli.format import moment

    return moment(seconds).partition(" ")[0]
