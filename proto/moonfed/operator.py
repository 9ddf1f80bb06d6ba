"""An operator's command-line options and connection, shared by all operator programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from moonfed.errors import MoonfedError, NotFound
from moonfed.identity import Identity, load_identity

if TYPE_CHECKING:
    import grpc

DEFAULT_STATE = Path("moonfed-coordinator")  # of a coordinator started in this directory
DEFAULT_IDENTITY = DEFAULT_STATE / "operator"
DEFAULT_ADDRESS = "127.0.0.1:7443"

IdentityOption = Annotated[
    Path,
    typer.Option(
        envvar="MOONFED_IDENTITY",
        metavar="DIR",
        help="The operator's identity directory, created by `serve` or `operator create`.",
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


@dataclass(frozen=True, slots=True)
class Connection:
    """An open channel to a coordinator, with a function that explains failures."""

    channel: grpc.Channel
    explain: Callable[[], MoonfedError]


@contextmanager
def open_connection(identity: Path, *, insecure: bool, address: str | None) -> Iterator[Connection]:
    """Return a connection with an operator's identity, or in plaintext to this machine.

    Raises InvalidInput for a malformed address, NotFound if there is no identity, Untrusted if its certificate has
    expired.
    """
    # Imports gRPC, which reads the verbosity that run_program sets when it is first imported.
    from moonfed import transport
    from moonfed.connection_diagnosis import explain_unavailable

    if address:
        transport.parse_address(address, "coordinator")
    held: Identity | None = None
    if not insecure:
        held = _operator(identity)
        held.require_valid()
    target = address or (held.address if held else DEFAULT_ADDRESS)
    with transport.open_channel(target, held) as channel:
        yield Connection(channel, lambda: explain_unavailable(target, held))


def _operator(identity: Path) -> Identity:
    try:
        return load_identity(identity)
    except NotFound as error:
        advice = (
            "`moonfed-coordinator serve` and `operator create` write one; name it with --identity or MOONFED_IDENTITY"
        )
        raise NotFound(f"{error}; {advice}") from error
