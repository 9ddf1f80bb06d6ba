"""moonfed-coordinator token …: create, list and revoke join tokens."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from moonfed.command_line.programs import new_group, print_json
from moonfed.formatting import count, iso
from moonfed.transport.operator_options import FindEndpoint, JsonOption, TrustOption, operator_options

if TYPE_CHECKING:
    from moonfed.control.devices import Token

PROGRAM = "moonfed-coordinator"
HELP = """Create, list and revoke join tokens, which devices need to enrol.

Example: moonfed-coordinator token create --uses 5
"""

token_app = new_group(HELP)


@token_app.command()
@operator_options
def create(
    endpoint: FindEndpoint,
    uses: Annotated[
        int, typer.Option(help="Number of devices that may enrol with the token.", min=1, max=1_000_000)
    ] = 1,
    valid_hours: Annotated[float, typer.Option(help="Validity in hours.")] = 24.0,
    device: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Let only this known device enrol, with a new key, which invalidates its old certificates.",
        ),
    ] = "",
    output: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the token to a new file that only you can read.", show_default=False),
    ] = None,
    trust: TrustOption = None,
    json: JsonOption = False,
) -> None:
    """Create a join token and print it.

    The token contains a trust file, yours unless --trust names another. Devices that enrol with the token run only
    bundles that are signed as this file requires.

    Example: moonfed-coordinator token create --uses 5 --valid-hours 48 --trust engineer.json --output join-token

    Example: moonfed-coordinator token create --device cam-7
    """
    from dataclasses import replace

    from moonfed.client import Coordinator
    from moonfed.control.devices import NewToken
    from moonfed.coordinator.cli.format import moment
    from moonfed.coordinator.pki.enrolment import MAX_VALID_SECONDS
    from moonfed.errors import InvalidInput
    from moonfed.files import write_durably
    from moonfed.signing.key_files import default_directory, ensure_keys, read_trust
    from moonfed.transport.join_token import parse_token
    from moonfed.v1 import control_pb2

    given = read_trust(trust) if trust else None
    if not 0 < valid_hours <= MAX_VALID_SECONDS / 3600:
        raise InvalidInput(
            field="valid_hours", value=valid_hours, allowed=f"above 0 and at most {MAX_VALID_SECONDS / 3600:g}"
        )
    if output:
        _require_new(output)
    with Coordinator(endpoint()) as client:
        request = control_pb2.CreateTokenRequest(uses=uses, valid_seconds=valid_hours * 3600, device=device)
        reply = client.connection.ask(NewToken, "CreateToken", request)
    chain = given or ensure_keys(default_directory(), lambda line: typer.echo(f"{PROGRAM}: {line}", err=True))
    chain.verify()
    token = str(replace(parse_token(reply.token), trust=chain))
    if output:
        write_durably(output, f"{token}\n".encode(), mode=0o600)
    if json:
        shown = {"output": str(output)} if output else {"token": token}
        print_json(shown | {"id": reply.id, "expires": iso(reply.expires)})
        return
    if not output:
        typer.echo(token)
    holders = f"device {device}" if device else count(uses, "device")
    place = f"{output} contains join token" if output else "join token"
    typer.echo(f"{place} {reply.id}, valid for {holders} until {moment(reply.expires)}", err=True)


@token_app.command("list")
@operator_options
def list_tokens(
    endpoint: FindEndpoint,
    json: JsonOption = False,
) -> None:
    """List the join tokens, without their secrets; expired ones stay listed for 30 days.

    Example: moonfed-coordinator token list
    """
    from moonfed.client import Coordinator
    from moonfed.control.document import document
    from moonfed.coordinator.cli.layout import table, terminal_width

    with Coordinator(endpoint()) as client:
        tokens = client.tokens()
    if json:
        print_json(document(tokens))
        return
    typer.echo(
        "\n".join(
            table(
                ["id", "status", "uses left", "until", "created by", "device"],
                [_row(token) for token in tokens],
                terminal_width(),
            )
        )
    )


@token_app.command()
@operator_options
def revoke(
    endpoint: FindEndpoint,
    token: Annotated[
        str,
        typer.Argument(
            metavar="TOKEN", help="The token, its id in `token list`, or the first six or more characters of the id."
        ),
    ],
    json: JsonOption = False,
) -> None:
    """Revoke a join token for good; the devices that enrolled with it stay.

    Example: moonfed-coordinator token revoke 3f9a1c04b7de
    """
    from moonfed.client import Coordinator
    from moonfed.control.document import document
    from moonfed.coordinator.pki.enrolment import token_id
    from moonfed.transport.join_token import PREFIX, parse_token

    id_ = token_id(parse_token(token).secret) if token.startswith(PREFIX) else token
    with Coordinator(endpoint()) as client:
        revoked = client.revoke_token(id_)
    if json:
        print_json(document(revoked))
    else:
        used = revoked.uses - revoked.uses_left
        typer.echo(f"join token {revoked.id} is revoked; it was used {count(used, 'time')}")


def _require_new(output: Path) -> None:
    from moonfed.errors import AlreadyExists, NotFound

    if output.exists():
        raise AlreadyExists(field="output", value=output, rest=", which exists; it must be a new file")
    if not output.parent.is_dir():
        raise NotFound(field="output", value=output, rest="; its directory does not exist")


def _row(token: Token) -> list[str]:
    from moonfed.coordinator.cli.format import moment

    left = f"{token.uses_left} of {token.uses}"
    return [token.id, token.status, left, moment(token.expires), token.operator or "-", token.device or "-"]
