"""Authentication of callers: by the name in the TLS certificate, never by the one in the message."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import grpc

from moonfed.coordinator.pki.authority import OPERATOR
from moonfed.coordinator.pki.enrolment import require_name
from moonfed.errors import Denied, Untrusted
from moonfed.identity import Role, subject_of

_ARTICLED = {"device": "a device", "operator": "an operator"}
_audit = logging.getLogger("moonfed.coordinator.audit")


@dataclass(frozen=True, slots=True)
class Authenticator:
    """Identifies callers. Without TLS (`insecure`) there is no certificate, and the claimed name is trusted."""

    insecure: bool

    def device(self, context: grpc.ServicerContext, claimed: str) -> str:
        """Return the calling device; raises Denied for an operator, or if the message names another device."""
        name = require_name("device", claimed) if self.insecure else self._certified(context, "device")
        if name != claimed:
            _audit.warning("%r, calling from %s, claimed to be device %r", name, context.peer(), claimed)
            raise Denied(f"the certificate is that of device {name!r}; it may not act for {claimed!r}")
        return name

    def operator(self, context: grpc.ServicerContext) -> str:
        """Return the calling operator; raises Denied if the certificate is a device's."""
        return OPERATOR if self.insecure else self._certified(context, "operator")

    def _certified(self, context: grpc.ServicerContext, role: Role) -> str:
        certificates = cast("Sequence[bytes]", context.auth_context().get("x509_pem_cert", ()))
        if not certificates:
            raise Untrusted("this call needs a certificate of this coordinator's authority")
        found, name = subject_of(certificates[0])
        if found != role:
            _audit.warning("%s %r at %s made a call that is only for %ss", found, name, context.peer(), role)
            raise Denied(f"{name!r} is {_ARTICLED[found]}; this call is for {role}s")
        return name
