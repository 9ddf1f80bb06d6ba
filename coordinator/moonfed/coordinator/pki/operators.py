"""Identities of operators: certificates with a role."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from moonfed.control.operators import Operator
from moonfed.coordinator.pki.authority import Authority, Signed, public_key_sha256
from moonfed.coordinator.records import OperatorRecord
from moonfed.coordinator.storage.operator_registry import OperatorRegistry
from moonfed.errors import InvalidInput, Untrusted
from moonfed.transport.identity import (
    CERTIFICATE_FILE,
    ROLES,
    Identity,
    Role,
    key_bytes,
    load_identity,
    new_key,
    read_certificate,
    require_name,
    save_identity,
    signing_request,
)

OPERATOR = "operator"  # the name of the state directory's own operator
OPERATOR_LIFE = timedelta(days=365)


def require_role(text: str) -> Role:
    """Return a role; raises InvalidInput."""
    if text not in ROLES:
        raise InvalidInput(field="role", value=text, allowed=f"one of {', '.join(ROLES)}")
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorIdentities:
    """Issue and revocation of operators' certificates. Blocking. `address`: of the Control service, host:port."""

    authority: Authority
    registry: OperatorRegistry
    address: str

    def create(self, operator: str, role: str, request: bytes, created_by: str) -> Signed:
        """Issue a certificate to a new operator; raises AlreadyExists if the name has a valid one."""
        return self._issue(require_name("operator", operator), require_role(role), request, created_by)

    def revoke(self, operator: str) -> list[Operator]:
        """Reject all certificates of an operator from now on; return those that were valid. Raises NotFound."""
        return self.registry.revoke(operator)

    def ensure_own(self, directory: Path, address: str) -> Signed | None:
        """Write the state directory's own identity, an admin's, unless the existing one is still accepted.

        Returns the certificate if it is a new one.
        """
        signed = None
        if held := self._accepted(directory):
            self.registry.adopt(_record_of(held))  # the database may have been restored from an older backup
            certificate, key = held.certificate, held.key
        else:
            private = new_key()
            signed = self._issue(OPERATOR, "admin", signing_request(private, OPERATOR), "")
            certificate, key = signed.certificate, key_bytes(private)
            (directory / CERTIFICATE_FILE).unlink(missing_ok=True)  # never next to another certificate's key
        if not held or held.address != address:
            save_identity(directory, address=address, ca=self.authority.ca, certificate=certificate, key=key)
        return signed

    def _issue(self, operator: str, role: Role, request: bytes, created_by: str) -> Signed:
        signed = self.authority.sign(request, operator, "operator", OPERATOR_LIFE, role)
        record = OperatorRecord(
            operator=operator,
            role=role,
            serial=signed.serial,
            public_key_sha256=signed.key_sha256,
            created=time.time(),
            created_by=created_by,
            expires=signed.expires,
        )
        if created_by:
            self.registry.create(record)
        else:
            self.registry.adopt(record)
        return signed

    def _accepted(self, directory: Path) -> Identity | None:
        """Return the identity in a directory if its certificate is ours, an admin's, valid, and not revoked."""
        if not (directory / CERTIFICATE_FILE).is_file():
            return None
        held = load_identity(directory)
        try:
            certificate = read_certificate(held.certificate)
        except Untrusted:  # its role is unknown to this release
            return None
        revoked = certificate.serial in self.registry.revoked()
        ours = held.ca == self.authority.ca and certificate.role == "admin"
        return held if ours and not revoked and not held.is_due_for_renewal() else None


def _record_of(held: Identity) -> OperatorRecord:
    """Return the record of the state directory's own identity."""
    certificate = read_certificate(held.certificate)
    return OperatorRecord(
        operator=certificate.name,
        role="admin",
        serial=certificate.serial,
        public_key_sha256=public_key_sha256(held.certificate),
        created=held.begins.timestamp(),
        created_by="",
        expires=certificate.expires,
    )
