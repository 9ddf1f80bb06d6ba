"""The asynchronous client of a coordinator."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from moonfed.client.aio.connection import AsyncConnection
from moonfed.client.aio.devices import AsyncDeviceCalls
from moonfed.client.aio.releases import AsyncReleaseCalls
from moonfed.client.aio.runs import AsyncRunCalls
from moonfed.transport.operator_connection import Endpoint, find_endpoint

if TYPE_CHECKING:
    from typing_extensions import Self


class AsyncCoordinator(AsyncRunCalls, AsyncDeviceCalls, AsyncReleaseCalls):
    """An asynchronous client of a coordinator.

    `identity`: an operator's identity directory, which `moonfed-coordinator serve` and `operator create` write; by
    default, as for the commands, the environment's MOONFED_IDENTITY, or else moonfed-coordinator/operator. `address`:
    host:port; by default, the identity's. `insecure`: connect without TLS, to a coordinator on this machine.

    Every call raises an error of `moonfed.errors`, and none of gRPC's: NotFound if there is no identity, Untrusted for
    a certificate that is not accepted, Denied if the operator's role does not permit the call, Unavailable if the
    coordinator cannot be reached.

    Example:
        async with AsyncCoordinator("moonfed-coordinator/operator") as coordinator:
            print([run.run for run in await coordinator.runs()])
    """

    def __init__(
        self, identity: str | Path | Endpoint | None = None, *, address: str | None = None, insecure: bool = False
    ) -> None:
        if not isinstance(identity, Endpoint):
            identity = find_endpoint(identity, insecure=insecure, address=address)
        self.connection = AsyncConnection(identity)

    async def close(self) -> None:
        """Close the connection; leaving `async with` does so, too."""
        await self.connection.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()
