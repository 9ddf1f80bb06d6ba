"""Enrolment of devices: join tokens, names, first certificates and their renewal."""

from __future__ import annotations

import hashlib
import math
import secrets
import time
from dataclasses import dataclass
from datetime import timedelta

from moonfed.control.devices import Token
from moonfed.coordinator.pki.authority import Authority, Signed
from moonfed.coordinator.storage.db.row_mapping import TOKEN_ID
from moonfed.coordinator.storage.device_registry import DeviceRegistry, Issued
from moonfed.errors import InvalidInput, Untrusted
from moonfed.formatting import moment
from moonfed.transport.identity import Certificate, require_name
from moonfed.transport.join_token import JoinToken
from moonfed.validate import require_whole

SECRET_BYTES = 32
MAX_USES = 1_000_000
MAX_VALID_SECONDS = 10 * 365 * 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Enrolment:
    """Enrolment of devices. Blocking: every method is a transaction. `address`: host:port in the tokens."""

    authority: Authority
    registry: DeviceRegistry
    address: str
    certificate_life: timedelta

    def create_token(
        self, uses: int, valid_seconds: float, *, device: str = "", operator: str = ""
    ) -> tuple[JoinToken, Token]:
        """Create a join token; return it with its record. Only the hash of its secret is stored.

        `device`: a known device that returns with it, with another key; raises NotFound if it is unknown. `operator`:
        the name of the operator who creates it.
        """
        require_whole("uses", uses, 1, MAX_USES)
        if device and uses != 1:
            raise InvalidInput(field="uses", value=uses, allowed="1 in a join token for one device")
        if not math.isfinite(valid_seconds) or not 0 < valid_seconds <= MAX_VALID_SECONDS:
            raise InvalidInput(field="valid_seconds", value=valid_seconds, allowed="above 0 and at most ten years")
        secret, now = secrets.token_urlsafe(SECRET_BYTES), time.time()
        record = Token(
            id=token_id(secret),
            status="valid",
            created=moment(now),
            operator=operator,
            expires=moment(now + valid_seconds),
            uses=uses,
            uses_left=uses,
            device=device,
        )
        self.registry.add_token(_hash(secret), record)
        return JoinToken(address=self.address, ca=self.authority.ca, secret=secret, device=device), record

    def enrol(self, secret: str, device: str, signing_request: bytes) -> Signed:
        """Issue a certificate to a new device, to one that enrolled with this key before, or to the token's device.

        Repeating the call with the same key and token issues another certificate without counting as a use, because a
        reply may be lost.
        Raises Untrusted for a token that is unknown, expired, revoked, used up or for another device; AlreadyExists if
        the name is taken.
        """
        require_name("device", device)
        self._check_token(secret, device)  # before parsing anything that an unauthenticated caller sent
        signed = self.authority.sign(signing_request, device, "device", self.certificate_life)
        if not self.registry.enrol(device, _issued(signed), _hash(secret)):
            raise Untrusted(
                "the join token is used up; ask the operator for a new one", field="join token", value="used up"
            )
        return signed

    def renew(self, certificate: Certificate, signing_request: bytes) -> Signed:
        """Issue a new certificate, in its present name, to a device that authenticated with this one."""
        device = self.registry.holder(certificate)
        signed = self.authority.sign(signing_request, device, "device", self.certificate_life)
        self.registry.renewed(device, certificate, _issued(signed))
        return signed

    def _check_token(self, secret: str, device: str) -> None:
        token = self.registry.token(_hash(secret))
        if token is None:
            raise Untrusted(
                "this coordinator has no record of the join token; ask its operator for a new one",
                field="join token",
                value="unknown",
            )
        if token.expires.timestamp() <= time.time():
            raise Untrusted("the join token has expired; ask the operator for a new one")
        if token.device not in ("", device):
            raise Untrusted(
                f"the join token is for device {token.device!r} only; enrol as it, or ask for another token",
                field="join token",
                value=token.device,
            )


def token_id(secret: str) -> str:
    """Return the id of a join token, which reveals nothing of its secret."""
    return _hash(secret)[:TOKEN_ID]


def _issued(signed: Signed) -> Issued:
    return Issued(serial=signed.serial, key_sha256=signed.key_sha256, expires=signed.expires)


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
