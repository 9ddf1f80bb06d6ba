"""The console's connections to the Control service: one for each operator, with that operator's identity."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from moonfed.client import AsyncCoordinator
from moonfed.coordinator.console.settings import ConsoleSettings
from moonfed.coordinator.rpc.permissions import PERMISSIONS, allowed_roles
from moonfed.errors import InvalidInput
from moonfed.transport.client import parse_address, require_loopback
from moonfed.transport.identity import Role, load_identity, read_certificate
from moonfed.transport.operator_connection import DEFAULT_ADDRESS, Endpoint

LOCAL_OPERATOR = "operator"  # of a coordinator without TLS, which knows no other


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """One operator who may use the console, and that operator's connection to the coordinator."""

    name: str
    role: Role
    address: str
    client: AsyncCoordinator


def load_operators(settings: ConsoleSettings) -> Mapping[str, Operator]:
    """Return the operators whose identities the console holds, by name; the first is the one-time link's.

    Raises NotFound for a missing identity, Untrusted for an expired one, InvalidInput for two of one operator.
    """
    if settings.coordinator:
        parse_address(settings.coordinator, "coordinator")
    if settings.insecure:
        address = settings.coordinator or DEFAULT_ADDRESS
        require_loopback(parse_address(address)[0])
        return {LOCAL_OPERATOR: _operator(LOCAL_OPERATOR, "admin", Endpoint(address, None))}
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
        endpoint = Endpoint(settings.coordinator or identity.address, identity)
        operators[certificate.name] = _operator(certificate.name, certificate.role, endpoint)
    return operators


def _operator(name: str, role: Role, endpoint: Endpoint) -> Operator:
    return Operator(name=name, role=role, address=endpoint.address, client=AsyncCoordinator(endpoint))


def permitted_calls(role: Role) -> list[str]:
    """Return the Control calls that a role permits."""
    return [call for call in PERMISSIONS if role in allowed_roles(call)]
