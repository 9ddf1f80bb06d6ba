"""An operator's command-line options, shared by all operator programs."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from moonfed.transport.operator_connection import DEFAULT_IDENTITY as DEFAULT_IDENTITY
from moonfed.transport.operator_connection import DEFAULT_STATE as DEFAULT_STATE
from moonfed.transport.operator_connection import IDENTITY_VARIABLE, Endpoint, find_endpoint

FindEndpoint: TypeAlias = Callable[[], Endpoint]  # of the coordinator; reads the identity

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


def operator_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of an operator's connection; its first parameter, a FindEndpoint, stands for them."""

    def run(*, identity: Path, insecure: bool, coordinator: str | None, **given: object) -> None:
        command(partial(find_endpoint, identity, insecure=insecure, address=coordinator), **given)

    options: dict[str, tuple[Any, object]] = {
        "identity": (IdentityOption, DEFAULT_IDENTITY),
        "insecure": (InsecureOption, False),
        "coordinator": (CoordinatorOption, None),
    }
    own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
    shared = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (kind, default) in options.items()
    ]
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    setattr(run, "__signature__", inspect.Signature([*own, *shared]))  # noqa: B010 - not declared of functions
    return run
