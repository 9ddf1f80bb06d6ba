"""The console's connections to the Control service: one for each operator, with that operator's identity."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import grpc
from grpc import aio

from moonfed.coordinator.console.settings import ConsoleSettings
from moonfed.coordinator.rpc.permissions import PERMISSIONS, allowed_roles
from moonfed.errors import InvalidInput, MoonfedError
from moonfed.transport.async_channel import open_async_channel
from moonfed.transport.client import CALL_SECONDS, parse_address, require_loopback
from moonfed.transport.diagnosis import explain_unavailable
from moonfed.transport.grpc_status import error_name, from_rpc_error
from moonfed.transport.identity import Identity, Role, load_identity, read_certificate
from moonfed.transport.operator_connection import DEFAULT_ADDRESS
from moonfed.v1 import control_pb2_grpc

Reply = TypeVar("Reply")
LOCAL_OPERATOR = "operator"  # of a coordinator without TLS, which knows no other


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """One operator who may use the console, and the Control service as that operator."""

    name: str
    role: Role
    control: Control


class Control:
    """The Control service as one operator, whose channel opens with the first call."""

    def __init__(self, address: str, identity: Identity | None) -> None:
        self.address, self._identity = address, identity
        self._channel: aio.Channel | None = None

    @property
    def stub(self) -> control_pb2_grpc.ControlAsyncStub:
        """The service's stub; only within the event loop."""
        if self._channel is None:
            self._channel = open_async_channel(self.address, self._identity)
        return control_pb2_grpc.ControlStub(self._channel)

    async def ask(self, method: Callable[..., Any], request: object) -> Any:  # noqa: ANN401 - of the method
        """Make a unary call; raises our errors."""
        try:
            return await method(request, timeout=CALL_SECONDS)
        except grpc.RpcError as error:
            raise await self._explained(error) from error

    async def stream(
        self, method: Callable[..., Any], request: object, timeout: float | None = CALL_SECONDS
    ) -> AsyncIterator[Any]:
        """Make a call that streams its replies; raises our errors."""
        call = method(request, timeout=timeout)
        try:
            async for reply in call:
                yield reply
        except grpc.RpcError as error:
            raise await self._explained(error) from error
        finally:
            call.cancel()

    async def close(self) -> None:
        """Close the channel."""
        if self._channel is not None:
            await self._channel.close(None)

    async def _explained(self, error: grpc.RpcError) -> MoonfedError:
        unreachable = cast(grpc.Call, error).code() == grpc.StatusCode.UNAVAILABLE and error_name(error) is None
        if unreachable:
            return await asyncio.to_thread(explain_unavailable, self.address, self._identity)
        return from_rpc_error(error)


def load_operators(settings: ConsoleSettings) -> Mapping[str, Operator]:
    """Return the operators whose identities the console holds, by name; the first is the one-time link's.

    Raises NotFound for a missing identity, Untrusted for an expired one, InvalidInput for two of one operator.
    """
    if settings.coordinator:
        parse_address(settings.coordinator, "coordinator")
    if settings.insecure:
        address = settings.coordinator or DEFAULT_ADDRESS
        require_loopback(parse_address(address)[0])
        return {LOCAL_OPERATOR: Operator(name=LOCAL_OPERATOR, role="admin", control=Control(address, None))}
    operators: dict[str, Operator] = {}
    for directory in settings.identities:
        identity = load_identity(directory)
        identity.require_valid()
        certificate = read_certificate(identity.certificate)
        if certificate.role is None:
            raise InvalidInput(field="identity", value=directory, rest=", a device's; it must be an operator's")
        if certificate.name in operators:
            raise InvalidInput(
                f"identity is given twice for operator {certificate.name!r}; give one of them",
                field="identity",
                value=certificate.name,
            )
        control = Control(settings.coordinator or identity.address, identity)
        operators[certificate.name] = Operator(name=certificate.name, role=certificate.role, control=control)
    return operators


def permitted_calls(role: Role) -> list[str]:
    """Return the Control calls that a role permits."""
    return [call for call in PERMISSIONS if role in allowed_roles(call)]
