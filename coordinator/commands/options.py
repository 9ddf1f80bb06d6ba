"""Options that several commands of moonfed-coordinator share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

IdentityOption = Annotated[
    Path,
    typer.Option(envvar="MOONFED_IDENTITY", help="The operator's identity directory, as `serve` makes it."),
]
InsecureOption = Annotated[bool, typer.Option("--insecure", help="Plaintext, to a coordinator on this machine.")]
CoordinatorOption = Annotated[
    str | None,
    typer.Option("--coordinator", metavar="HOST:PORT", help="Where it listens; else the identity's own address."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON document for scripts.")]
DEFAULT_STATE = Path("moonfed-coordinator")
DEFAULT_IDENTITY = DEFAULT_STATE / "operator"
