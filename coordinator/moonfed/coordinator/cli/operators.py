"""moonfed-coordinator operator …: create, list and revoke operators."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from moonfed.command_line.programs import new_group, print_json
from moonfed.transport.operator_options import FindEndpoint, JsonOption, operator_options

if TYPE_CHECKING:
    from datetime import datetime

    from moonfed.control.operators import Operator

HELP = """Create, list and revoke operators, who each have a role and certificates.

Example: moonfed-coordinator operator create ann --role engineer --output ann
"""

operator_app = new_group(HELP)
OperatorArgument = Annotated[str, typer.Argument(metavar="NAME", help="The operator's name.", show_default=False)]


@operator_app.command()
@operator_options
def create(
    endpoint: FindEndpoint,
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
    json: JsonOption = False,
) -> None:
    """Create an operator, and write an identity for their machine.

    Whoever has this directory can act as the operator: copy it to the operator's machine, then delete it here.

    Example: moonfed-coordinator operator create ann --role engineer --output ann
    """
    from moonfed.client import Coordinator
    from moonfed.coordinator.cli.format import moment
    from moonfed.errors import AlreadyExists
    from moonfed.files import new_directory
    from moonfed.formatting import iso
    from moonfed.formatting import moment as utc
    from moonfed.transport.identity import (
        key_bytes,
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
    where = endpoint()
    with Coordinator(where) as client, new_directory(output) as directory:
        directory.chmod(0o700)
        reply = client.connection.ask(control_pb2.CreateOperatorReply, "CreateOperator", request)
        assert where.identity  # noqa: S101 - a coordinator without TLS creates no operators
        save_identity(
            directory,
            address=reply.address,
            ca=where.identity.ca,
            certificate=reply.certificate,
            key=key_bytes(key),
        )
    made = read_certificate(reply.certificate)
    expires = utc(made.expires)
    if json:
        shown = {"operator": made.name, "role": made.role, "serial": made.serial, "expires": iso(expires)}
        print_json(shown | {"identity": str(output)})
        return
    typer.echo(f"{output} is the identity of operator {name} with the role {role}, until {moment(expires)}")


@operator_app.command("list")
@operator_options
def list_operators(
    endpoint: FindEndpoint,
    json: JsonOption = False,
) -> None:
    """List the operators' certificates.

    Example: moonfed-coordinator operator list
    """
    from moonfed.client import Coordinator
    from moonfed.control.codec import from_message
    from moonfed.control.operators import Operator
    from moonfed.coordinator.cli.layout import table, terminal_width
    from moonfed.v1 import control_pb2

    with Coordinator(endpoint()) as client:
        request, kind = control_pb2.ListOperatorsRequest(), control_pb2.ListOperatorsReply
        reply = client.connection.ask(kind, "ListOperators", request)
    operators = [from_message(Operator, message) for message in reply.operators]
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
@operator_options
def revoke(
    endpoint: FindEndpoint,
    name: OperatorArgument,
    json: JsonOption = False,
) -> None:
    """Reject all certificates of an operator, and end their calls.

    Example: moonfed-coordinator operator revoke ann
    """
    from moonfed.client import Coordinator
    from moonfed.control.codec import from_message
    from moonfed.control.operators import Operator
    from moonfed.v1 import control_pb2

    with Coordinator(endpoint()) as client:
        # Not retried: a second attempt would find nothing left to revoke.
        request, kind = control_pb2.RevokeOperatorRequest(operator=name), control_pb2.RevokeOperatorReply
        reply = client.connection.ask(kind, "RevokeOperator", request, once=True)
    revoked = [from_message(Operator, message) for message in reply.operators]
    if json:
        print_json([operator_document(operator) for operator in revoked])
    elif revoked:
        certificates = ", ".join(operator.serial for operator in revoked)
        typer.echo(f"operator {name} is revoked; rejected certificates: {certificates}")
    else:
        typer.echo(f"operator {name} was already revoked; nothing has changed")


def operator_document(operator: Operator) -> dict[str, Any]:
    """Return an operator's certificate as JSON values."""
    from moonfed.control.document import document

    return {**document(operator), "status": operator_status(operator)}


def operator_status(operator: Operator) -> str:
    """Return the status of an operator's certificate as one word."""
    from datetime import datetime, timezone

    if operator.revoked:
        return "revoked"
    return "valid" if operator.expires > datetime.now(timezone.utc) else "expired"


def _day(time: datetime) -> str:
    from moonfed.coordinator.cli.format import moment

    return moment(time).partition(" ")[0]
