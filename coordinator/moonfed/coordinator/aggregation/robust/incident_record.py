"""What a run's defence did to a device's update."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Offence:
    """Why a device's update did not count as it was sent; `what` is one sentence."""

    device: str
    what: str
