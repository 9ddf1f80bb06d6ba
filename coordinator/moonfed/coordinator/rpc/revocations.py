"""Certificates that are no longer accepted: expired ones, and those that operators' commands made invalid."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import datetime, timezone

from moonfed.coordinator.storage.certificates import Rejection
from moonfed.coordinator.storage.registry_view import RegistryView
from moonfed.errors import Renamed, Untrusted
from moonfed.transport.identity import Certificate

Clock = Callable[[], float]


def _wall_clock() -> float:
    return datetime.now(timezone.utc).timestamp()


class Revocations:
    """The rejected certificates by serial number, as last read from the registry, so that calls need not read it."""

    def __init__(self, wall_clock: Clock = _wall_clock, clock: Clock = time.monotonic) -> None:
        self._devices: Mapping[str, Rejection] = {}
        self._operators: frozenset[str] = frozenset()
        self._wall_clock, self._clock = wall_clock, clock
        self._start = wall_clock() - clock()

    async def apply(self, view: RegistryView) -> None:
        """Apply a newer version of the registries."""
        self._devices, self._operators = view.devices, view.operators

    def rejection(self, certificate: Certificate) -> Untrusted | None:
        """Return an error with the reason if a certificate is not accepted. May be called from any thread."""
        holder = f"the certificate {certificate.serial} of {certificate.kind} {certificate.name!r}"
        if certificate.expires <= self._now():
            expiry = datetime.fromtimestamp(certificate.expires, timezone.utc)
            operator, device = "ask an admin for a new identity", "enrol the device again with a new join token"
            remedy = operator if certificate.kind == "operator" else device
            return Untrusted(f"{holder} expired on {expiry:%Y-%m-%d %H:%M} UTC; {remedy}")
        if certificate.kind == "operator":
            revoked = certificate.serial in self._operators
            return Untrusted(f"{holder} was revoked by an operator; ask an admin for a new one") if revoked else None
        rejected = self._devices.get(certificate.serial)
        return _error(holder, rejected) if rejected else None

    def _now(self) -> float:
        """Return the time; a wall clock that jumps ahead while we run must not expire the fleet's certificates."""
        return min(self._wall_clock(), self._start + self._clock())


def _error(holder: str, rejected: Rejection) -> Untrusted:
    device = repr(rejected.device)
    if rejected.reason == "renamed":
        return Renamed(f"{holder} is outdated: an operator renamed the device to {device}; renew it under that name")
    if rejected.reason == "removed":
        return Untrusted(
            f"{holder} was rejected because an operator removed the device; enrol it with a new join token, "
            "in an empty state directory"
        )
    if rejected.reason == "replaced":
        return Untrusted(
            f"{holder} was replaced: a device has enrolled as {device} with a token for it; if this is that device, "
            "start it again, otherwise enrol it under another name in an empty state directory"
        )
    return Untrusted(
        f"{holder} was revoked by an operator; the device can return with a join token that an operator creates for it"
    )
