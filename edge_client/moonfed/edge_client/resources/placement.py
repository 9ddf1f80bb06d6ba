"""Placement of a round's data by their size and the free memory; does not import torch."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto


class Placement(Enum):
    """Location of data; STEP: nowhere, because the step computes it."""

    ACCELERATOR = auto()
    HOST = auto()
    STEP = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Memory available for a round's data, in bytes."""

    host: int | None  # None: unknown
    accelerator: int | None = None  # None: there is none, the CPU computes

    def place(self, size: int, before: int = 0) -> Placement:
        """Return where data of a size go; `before`: bytes of the accelerator's memory already in use."""
        if self.accelerator is not None and 2 * (before + size) <= self.accelerator:
            return Placement.ACCELERATOR
        return Placement.HOST if self.host is None or 2 * size <= self.host else Placement.STEP
