"""An operator's command-line options, shared by all operator programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from moonfed.transport.operator_connection import DEFAULT_IDENTITY as DEFAULT_IDENTITY
from moonfed.transport.operator_connection import DEFAULT_STATE as DEFAULT_STATE
from moonfed.transport.operator_connection import IDENTITY_VARIABLE
from moonfed.transport.operator_connection import open_connection as open_connection

IdentityOption = Annotated[
    Path,
    typer.Option(
        envvar=IDENTITY_VARIABLE,
        metavar="DIR",
        help="The operator's identity directory, created by `moonfed-coordinator serve` or `operator create`.",
    ),
]
InsecureOption = Annotated[
    bool, typer.Option("--insecure", help="Connect without TLS; only to a coordinator on this machine.")
]
CoordinatorOption = Annotated[
    str | None,
    typer.Option("--coordinator", metavar="HOST:PORT", help="The coordinator's address. Default: the identity's."),
]
TrustOption = Annotated[
    Path | None,
    typer.Option(
        "--trust",
        metavar="FILE",
        help="The engineer's trust file. Default: your own.",
        show_default=False,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
