"""Authentication of callers: by the name in the TLS certificate, never by the one in the message."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, cast

import grpc

from moonfed.coordinator.pki.authority import OPERATOR
from moonfed.coordinator.pki.enrolment import require_name
from moonfed.coordinator.support.flood_log import FloodLog
from moonfed.errors import Denied, Untrusted
from moonfed.identity import Certificate, Role, read_certificate

_ARTICLED = {"device": "a device", "operator": "an operator"}
_audit = logging.getLogger("moonfed.coordinator.audit")


class Connections(Protocol):
    """The connections over which calls arrive."""

    def authenticated(self, peer: str, certificate: Certificate | None) -> None:
        """Note an authenticated call."""

    def close(self, peer: str, reason: str, level: int = logging.WARNING) -> None:
        """Close a connection, which ends all its calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """An operator who has made a call, as the audit log names them."""

    name: str
    serial: str
    address: str

    def __str__(self) -> str:
        return f"operator {self.name!r} with certificate {self.serial} at {self.address}"


class Authenticator:
    """Identifies the caller of every call: a connection may remain open after its certificate has expired.

    Without TLS (`insecure`) there is no certificate, and the claimed name is trusted. `rejection` returns the reason if
    a certificate is not accepted.
    """

    def __init__(
        self, *, insecure: bool, connections: Connections, rejection: Callable[[Certificate], str | None]
    ) -> None:
        self._insecure, self._connections, self._rejection = insecure, connections, rejection
        self._warnings = FloodLog(_audit)

    def device(self, context: grpc.ServicerContext, claimed: str) -> str:
        """Return the calling device; raises Denied for an operator, or if the message names another device."""
        name = require_name("device", claimed) if self._insecure else self._certified(context, "device").name
        if name != claimed:
            self._warn(name, "%r, calling from %s, claimed to be device %r", name, context.peer(), claimed)
            raise Denied(f"the certificate is that of device {name!r}; it may not act for {claimed!r}")
        if self._insecure:
            self._connections.authenticated(context.peer(), None)
        return name

    def operator(self, context: grpc.ServicerContext) -> Operator:
        """Return the calling operator; raises Denied if the certificate is a device's."""
        if self._insecure:
            self._connections.authenticated(context.peer(), None)
            return Operator(name=OPERATOR, serial="none", address=context.peer())
        certificate = self._certified(context, "operator")
        return Operator(name=certificate.name, serial=certificate.serial, address=context.peer())

    def serial(self, context: grpc.ServicerContext) -> str:
        """Return the serial number of the caller's certificate."""
        certificate = _certificate(context)
        return certificate.serial if certificate else "none"

    def disconnect(self, context: grpc.ServicerContext, reason: str) -> None:
        """Close the caller's connection, which ends all its calls."""
        self._connections.close(context.peer(), reason)

    def close_former(self, peer: str) -> None:
        """Close a connection whose device has reconnected: it is dead, which we would notice only after a minute."""
        self._connections.close(peer, "its device has connected again", logging.INFO)

    def _certified(self, context: grpc.ServicerContext, role: Role) -> Certificate:
        certificate = _certificate(context)
        if certificate is None:
            raise Untrusted("this call needs a certificate of this coordinator's authority")
        if rejection := self._rejection(certificate):
            self._warn(certificate.name, "call from %s rejected: %s", context.peer(), rejection)
            raise Untrusted(rejection)
        name = certificate.name
        if certificate.role != role:
            found = certificate.role
            self._warn(name, "%s %r at %s made a call reserved for %ss", found, name, context.peer(), role)
            raise Denied(f"{name!r} is {_ARTICLED[found]}; this call is for {role}s")
        self._connections.authenticated(context.peer(), certificate)
        return certificate

    def _warn(self, cause: str, line: str, *values: object) -> None:
        self._warnings.write(logging.WARNING, cause, line, *values)


def caller_of(context: grpc.ServicerContext) -> str:
    """Return the name in the caller's certificate, or its address without TLS."""
    certificate = _certificate(context)
    return certificate.name if certificate else context.peer()


def _certificate(context: grpc.ServicerContext) -> Certificate | None:
    certificates = cast("Sequence[bytes]", context.auth_context().get("x509_pem_cert", ()))
    return read_certificate(certificates[0]) if certificates else None
