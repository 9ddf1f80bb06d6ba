"""Certificates that are no longer accepted: expired ones, and those of revoked devices."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from datetime import datetime, timezone

from moonfed.coordinator.storage.device_registry import DeviceRegistry
from moonfed.coordinator.support.error_log import log_error
from moonfed.coordinator.support.tasks import in_thread
from moonfed.identity import Certificate

REFRESH_SECONDS = 0.4
Clock = Callable[[], float]
_log = logging.getLogger(__name__)


def _wall_clock() -> float:
    return datetime.now(timezone.utc).timestamp()


class Revocations:
    """The revoked devices, read from the registry a few times a second, so that calls need not read it."""

    def __init__(
        self, registry: DeviceRegistry, wall_clock: Clock = _wall_clock, clock: Clock = time.monotonic
    ) -> None:
        self._registry = registry
        self._revoked: frozenset[str] = frozenset()
        self._wall_clock, self._clock = wall_clock, clock
        self._start = wall_clock() - clock()

    async def refresh(self) -> None:
        """Read the registry."""
        self._revoked = await in_thread(self._registry.revoked)

    async def keep_fresh(self) -> None:
        """Refresh forever; while the registry cannot be read, the last known state applies."""
        readable = True
        while True:
            await asyncio.sleep(REFRESH_SECONDS)
            try:
                await self.refresh()
                readable = True
            except Exception as error:
                if readable:
                    log_error(_log, "cannot read the revoked devices; those already known stay revoked", error)
                readable = False

    def rejection(self, certificate: Certificate) -> str | None:
        """Return the reason if a certificate is not accepted. May be called from any thread."""
        holder = f"the certificate {certificate.serial} of {certificate.role} {certificate.name!r}"
        if certificate.expires <= self._now():
            expiry = datetime.fromtimestamp(certificate.expires, timezone.utc)
            return f"{holder} expired on {expiry:%Y-%m-%d %H:%M} UTC; it must enrol again"
        if certificate.role == "device" and certificate.name in self._revoked:
            return f"{holder} was revoked by an operator"
        return None

    def _now(self) -> float:
        """Return the time; a wall clock that jumps ahead while we run must not expire the fleet's certificates."""
        return min(self._wall_clock(), self._start + self._clock())
