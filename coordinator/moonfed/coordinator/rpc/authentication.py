"""Authentication of callers: by the name in the TLS certificate, never by the one in the message."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, cast

import grpc

from moonfed.coordinator.pki.operators import OPERATOR
from moonfed.coordinator.rpc.permissions import NotPermitted, require_permission
from moonfed.errors import Denied, Renamed, Untrusted
from moonfed.observability.flood_log import FloodLog
from moonfed.transport.identity import Certificate, Kind, Role, read_certificate, require_name

_ARTICLED = {"device": "a device", "operator": "an operator"}
_audit = logging.getLogger("moonfed.coordinator.audit")


class Connections(Protocol):
    """The connections over which calls arrive."""

    def authenticated(self, peer: str, certificate: Certificate | None) -> None:
        """Note an authenticated call."""

    def close(self, peer: str, reason: str, level: int = logging.WARNING) -> None:
        """Close a connection, which ends all its calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """An operator or a device that has made a call, a stranger, or the coordinator itself."""

    name: str
    role: Role | Literal["device", "coordinator", ""]  # empty for a stranger
    serial: str  # of the certificate
    peer: str  # the address, as gRPC writes it

    def __str__(self) -> str:
        kind = "device" if self.role == "device" else "operator"
        return f"{kind} {self.name!r} with certificate {self.serial} at {self.peer}"


class Authenticator:
    """Identifies the caller of every call: a connection may remain open after its certificate has expired.

    Without TLS (`insecure`) there is no certificate, and the claimed name is trusted. `rejection` returns an error if a
    certificate is not accepted.
    """

    def __init__(
        self, *, insecure: bool, connections: Connections, rejection: Callable[[Certificate], Untrusted | None]
    ) -> None:
        self._insecure = insecure
        self._connections = connections
        self._rejection = rejection
        self._warnings = FloodLog(_audit)

    def device(self, context: grpc.ServicerContext, claimed: str) -> str:
        """Return the calling device; raises Denied for an operator, or if the message names another device."""
        if not self._insecure:
            return self._claimant(context, claimed, self._certified(context, "device")).name
        self._connections.authenticated(context.peer(), None)
        return require_name("device", claimed)

    def renewing_device(self, context: grpc.ServicerContext, claimed: str) -> Certificate:
        """Return the certificate that a device wants to renew; a renamed device may do so. Raises as `device`."""
        return self._claimant(context, claimed, self._certified(context, "device", tolerated=Renamed))

    def certificate(self, context: grpc.ServicerContext) -> Certificate | None:
        """Return the caller's certificate; None without TLS."""
        return _certificate(context)

    def operator(self, context: grpc.ServicerContext, call: str, details: str = "") -> Caller:
        """Return the calling operator; raises Denied for a device, or if the operator's role does not permit the call.

        `details`: what the call would do, for the audit trail.
        """
        if self._insecure:
            self._connections.authenticated(context.peer(), None)
            return Caller(name=OPERATOR, role="admin", serial="none", peer=context.peer())
        certificate = self._certified(context, "operator")
        caller = _caller(certificate, context)
        try:
            require_permission(certificate, call, details)
        except NotPermitted as error:
            self._warn(caller.name, "%s was denied a call: %s", caller, error)
            raise
        return caller

    def disconnect(self, context: grpc.ServicerContext, reason: str) -> None:
        """Close the caller's connection, which ends all its calls."""
        self._connections.close(context.peer(), reason)

    def close_former(self, peer: str) -> None:
        """Close a connection whose device has reconnected: it is dead, which keepalive would detect only after 80 s."""
        self._connections.close(peer, "its device has connected again", logging.INFO)

    def _claimant(self, context: grpc.ServicerContext, claimed: str, certificate: Certificate) -> Certificate:
        name = certificate.name
        if name != claimed:
            self._warn(name, "%r, calling from %s, claimed to be device %r", name, context.peer(), claimed)
            raise Denied(f"the certificate is that of device {name!r}; it may not act for {claimed!r}")
        return certificate

    def _certified(
        self, context: grpc.ServicerContext, kind: Kind, tolerated: tuple[type[Untrusted], ...] | type[Untrusted] = ()
    ) -> Certificate:
        certificate = _certificate(context)
        if certificate is None:
            raise Untrusted("this call needs a certificate of this coordinator's authority")
        rejection = self._rejection(certificate)
        if rejection and not isinstance(rejection, tolerated):
            self._warn(certificate.name, "call from %s rejected: %s", context.peer(), rejection)
            raise rejection
        name = certificate.name
        if certificate.kind != kind:
            found = certificate.kind
            self._warn(name, "%s %r at %s made a call reserved for %ss", found, name, context.peer(), kind)
            raise Denied(f"{name!r} is {_ARTICLED[found]}; this call is for {kind}s")
        self._connections.authenticated(context.peer(), certificate)
        return certificate

    def _warn(self, cause: str, line: str, *values: object) -> None:
        self._warnings.write(logging.WARNING, cause, line, *values)


def caller_of(context: grpc.ServicerContext) -> str:
    """Return the name in the caller's certificate, or its address without TLS."""
    certificate = _certificate(context)
    return certificate.name if certificate else context.peer()


def identify(context: grpc.ServicerContext) -> Caller:
    """Return the caller that the certificate names, whether or not it is accepted; a stranger if it names nobody."""
    try:
        certificate = _certificate(context)
    except Untrusted:
        certificate = None
    return _caller(certificate, context) if certificate else stranger(context)


def stranger(context: grpc.ServicerContext, claimed: str = "") -> Caller:
    """Return a caller without a certificate."""
    return Caller(name=claimed, role="", serial="none", peer=context.peer())


def _caller(certificate: Certificate, context: grpc.ServicerContext) -> Caller:
    role = certificate.role or "device"
    return Caller(name=certificate.name, role=role, serial=certificate.serial, peer=context.peer())


def _certificate(context: grpc.ServicerContext) -> Certificate | None:
    certificates = cast("Sequence[bytes]", context.auth_context().get("x509_pem_cert", ()))
    return read_certificate(certificates[0]) if certificates else None
