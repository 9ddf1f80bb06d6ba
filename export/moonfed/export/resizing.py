"""Which pictures are too small for the models, and what they become. Needs no torch."""

from __future__ import annotations

SMALLEST_SIDE = 16  # pixels; below it two 5x5 convolutions with pooling leave nothing
RESIZED_SIDE = 32  # what a side below the smallest becomes


def resized(side: int) -> int:
    """A side's length in pixels after preprocessing."""
    return side if side >= SMALLEST_SIDE else RESIZED_SIDE
