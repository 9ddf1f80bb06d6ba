"""The command that creates API keys for the inference server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from moonfed.command_line.programs import print_json
from moonfed.transport.operator_options import JsonOption


def api_key(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The caller's name, shown in the file and in messages.")],
    file: Annotated[
        Path, typer.Option("--file", metavar="KEYS", help="The file of `serve --api-key-file`; created if absent.")
    ],
    admin: Annotated[
        bool, typer.Option("--admin", help="Also permit loading and unloading models, and reading metrics.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Create an API key for a client of `serve`: print it, once, and add its hash to a file.

    To revoke a key, delete its line; running servers notice within a second.

    Example: moonfed-export api-key alice --file keys
    """
    from moonfed.serving.requests.api_keys import create_key

    key = create_key(file, name, admin=admin)
    if as_json:
        print_json({"name": name, "key": key})
    else:
        print(key)
