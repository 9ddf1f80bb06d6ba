"""A run's draws of devices, which nobody can predict who does not know the run's secret."""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from dataclasses import dataclass, field

SECRET_BYTES = 32


@dataclass(frozen=True, slots=True)
class Draw:
    """The draws of a run, each a function of its secret, which never leaves the coordinator."""

    secret: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.secret) != SECRET_BYTES:
            raise ValueError(f"a draw's secret has {len(self.secret)} bytes; it must have {SECRET_BYTES}")

    def digest(self, purpose: str, device: str) -> bytes:
        """Return a device's 32 bytes in the draw for a purpose, uniform and independent of all others."""
        return hmac.digest(self.secret, f"{purpose}/{device}".encode(), "sha256")

    def order(self, purpose: str, devices: Iterable[str]) -> list[str]:
        """Return the devices in the order in which a uniform draw for a purpose selects them."""
        return sorted(devices, key=lambda device: self.digest(purpose, device))
