"""The size of images after preprocessing, which enlarges those too small for the models. Needs no torch."""

from __future__ import annotations

SMALLEST_SIDE = 16  # pixels; smaller images vanish in two 5x5 convolutions with pooling
RESIZED_SIDE = 32  # pixels that a smaller side is resized to


def resized(side: int) -> int:
    """Return a side's length in pixels after preprocessing."""
    return side if side >= SMALLEST_SIDE else RESIZED_SIDE
