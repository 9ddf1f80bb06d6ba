"""The commands `console` and `console-password`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from moonfed.command_line.log_options import LogFormatOption, LogLevelOption
from moonfed.command_line.programs import print_json
from moonfed.transport.operator_options import DEFAULT_IDENTITY, CoordinatorOption, InsecureOption


def console(
    identity: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="DIR",
            envvar="MOONFED_IDENTITY",
            help="An operator's identity directory; repeatable, one for each operator who logs in. "
            f"Default: {DEFAULT_IDENTITY}.",
            show_default=False,
        ),
    ] = None,
    insecure: InsecureOption = False,
    coordinator: CoordinatorOption = None,
    host: Annotated[str, typer.Option(help="Address to listen on; beyond this machine only with TLS.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port for browsers; 0: any free one.")] = 8480,
    name: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST", help="Host name by which browsers reach the console; repeatable.", show_default=False
        ),
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Certificate chain, PEM.", show_default=False)
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Its private key, PEM.", show_default=False)
    ] = None,
    password_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Let operators log in with the passwords in this file, which console-password writes.",
            show_default=False,
        ),
    ] = None,
    trusted_proxy: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS",
            help="A proxy that authenticates operators; no other caller is served.",
            show_default=False,
        ),
    ] = "",
    proxy_user_header: Annotated[
        str, typer.Option(metavar="NAME", help="The proxy's header with the operator's name.", show_default=False)
    ] = "",
    proxy_secret_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The secret that the proxy adds to each request, in the header X-Proxy-Secret.",
            show_default=False,
        ),
    ] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Offer no actions, whatever the role.")] = False,
    log_format: LogFormatOption = "text",
    log_level: LogLevelOption = "info",
    json: Annotated[bool, typer.Option("--json", help="Print address and link as one line of JSON.")] = False,
) -> None:
    """Serve web pages with runs, fleet and models, and with actions that the operator's role permits.

    Prints a link that opens the console once, unless operators log in otherwise; press Enter for another. Every change
    is in the audit trail under the operator's name.

    Example: moonfed-coordinator console --identity ann
    """  # fmt: skip
    import logging

    from moonfed.coordinator.console.server import serve_console
    from moonfed.coordinator.console.settings import ConsoleSettings
    from moonfed.observability.logs import configure_logs

    settings = ConsoleSettings(
        identities=tuple(identity or (DEFAULT_IDENTITY,)),
        insecure=insecure,
        coordinator=coordinator,
        host=host,
        port=port,
        names=tuple(name or ()),
        certificate=tls_cert,
        key=tls_key,
        password_file=password_file,
        trusted_proxy=trusted_proxy,
        user_header=proxy_user_header,
        proxy_secret_file=proxy_secret_file,
        read_only=read_only,
    )

    def ready(address: str, link: str) -> None:
        if json:
            print_json({"address": address, "link": link or None})
        elif link:
            print(f"open the console with this link, which works once (press Enter for another): {link}", flush=True)
        else:
            print(f"the console is at {address}", flush=True)

    configure_logs(log_format, log_level)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    serve_console(settings, ready)


def console_password(
    operator: Annotated[str, typer.Argument(metavar="OPERATOR", help="The operator's name, as in the identity.")],
    file: Annotated[Path, typer.Option(metavar="FILE", help="The password file; created if absent.")] = Path(
        "console-passwords"
    ),
) -> None:
    """Set an operator's password for `console --password-file`; asks for it, or reads a line from standard input.

    The file holds only a hash (Argon2id).

    Example: moonfed-coordinator console-password ann --file console-passwords
    """  # fmt: skip
    import sys

    from moonfed.coordinator.console.passwords import set_password
    from moonfed.errors import InvalidInput

    if not operator or any(letter in ":#" or letter.isspace() or not letter.isprintable() for letter in operator):
        raise InvalidInput(field="operator", value=operator, allowed="a name without ':', '#' and spaces")
    if sys.stdin.isatty():
        password = typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    else:
        password = sys.stdin.readline().rstrip("\n")
    set_password(file, operator, password)
    print(f"{operator} can log in with --password-file {file}")
