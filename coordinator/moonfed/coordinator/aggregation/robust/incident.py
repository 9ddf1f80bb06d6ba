"""The record of one incident."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """A reason why a device's update did not count unchanged; `description` is one sentence."""

    device: str
    description: str
    clipped: bool = False  # the change was scaled down, and was unusually long
