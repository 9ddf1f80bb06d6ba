"""An operator's connection to a coordinator."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from moonfed.errors import MoonfedError, NotFound
from moonfed.transport.identity import Identity, load_identity

DEFAULT_STATE = Path("moonfed-coordinator")  # of a coordinator started in this directory
DEFAULT_IDENTITY = DEFAULT_STATE / "operator"
DEFAULT_ADDRESS = "127.0.0.1:7443"
IDENTITY_VARIABLE = "MOONFED_IDENTITY"  # of the environment: an identity directory


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A coordinator's address, and the identity that an operator calls it with; None: in plaintext on this machine."""

    address: str
    identity: Identity | None

    def explain(self) -> MoonfedError:
        """Explain why the coordinator is unavailable, by connecting to it."""
        from moonfed.transport.diagnosis import explain_unavailable

        return explain_unavailable(self.address, self.identity)


def find_endpoint(identity: str | Path | None, *, insecure: bool, address: str | None) -> Endpoint:
    """Return a coordinator's endpoint: by default, at the address of the identity.

    `identity`: a directory; None: the environment's, or else that of a coordinator started in this directory.

    Raises InvalidInput for a malformed address, NotFound if there is no identity, Untrusted if its certificate has
    expired.
    """
    # Imports gRPC, which reads the verbosity that run_program sets when it is first imported.
    from moonfed.transport import client as transport

    if address:
        transport.parse_address(address, "coordinator")
    held: Identity | None = None
    if not insecure:
        held = _operator(Path(identity or os.environ.get(IDENTITY_VARIABLE) or DEFAULT_IDENTITY))
        held.require_valid()
    return Endpoint(address or (held.address if held else DEFAULT_ADDRESS), held)


def _operator(identity: Path) -> Identity:
    try:
        return load_identity(identity)
    except NotFound as error:
        advice = (
            "`moonfed-coordinator serve` and `operator create` write one; name it with --identity or MOONFED_IDENTITY"
        )
        raise NotFound(f"{error}; {advice}") from error
