"""The clients of a coordinator."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType

from moonfed.client.aio.devices import AsyncDeviceCalls
from moonfed.client.aio.releases import AsyncReleaseCalls
from moonfed.client.aio.runs import AsyncRunCalls
from moonfed.client.sync.devices import DeviceCalls
from moonfed.client.sync.releases import ReleaseCalls
from moonfed.client.sync.runs import RunCalls
from moonfed.transport.operator_connection import DEFAULT_IDENTITY, IDENTITY_VARIABLE, Endpoint, find_endpoint


class Coordinator(RunCalls, DeviceCalls, ReleaseCalls):
    """A synchronous client of a coordinator.

    `identity`: an operator's identity directory, which `moonfed-coordinator serve` and `operator create` write; by
    default, as for the commands, the environment's MOONFED_IDENTITY, or else moonfed-coordinator/operator. `address`:
    host:port; by default, the identity's. `insecure`: connect without TLS, to a coordinator on this machine.

    Every call raises an error of `moonfed.errors`, and none of gRPC's: NotFound if there is no identity, Untrusted for
    a certificate that is not accepted, Denied if the operator's role does not permit the call, Unavailable if the
    coordinator cannot be reached.

    Example:
        with Coordinator("moonfed-coordinator/operator") as coordinator:
            print([run.run for run in coordinator.runs()])
    """

    def __init__(
        self, identity: str | Path | None = None, *, address: str | None = None, insecure: bool = False
    ) -> None:
        super().__init__(_endpoint(identity, address, insecure=insecure))

    def __enter__(self) -> Coordinator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class AsyncCoordinator(AsyncRunCalls, AsyncDeviceCalls, AsyncReleaseCalls):
    """An asynchronous client of a coordinator, with the calls, arguments and results of `Coordinator`.

    It belongs to the event loop in which it is first used.

    Example:
        async with AsyncCoordinator("moonfed-coordinator/operator") as coordinator:
            print([run.run for run in await coordinator.runs()])
    """

    def __init__(
        self, identity: str | Path | None = None, *, address: str | None = None, insecure: bool = False
    ) -> None:
        super().__init__(_endpoint(identity, address, insecure=insecure))

    async def __aenter__(self) -> AsyncCoordinator:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


def _endpoint(identity: str | Path | None, address: str | None, *, insecure: bool) -> Endpoint:
    directory = identity if identity is not None else os.environ.get(IDENTITY_VARIABLE) or DEFAULT_IDENTITY
    return find_endpoint(Path(directory), insecure=insecure, address=address)
