"""Keeps freed memory from being held back: gRPC and our threads allocate megabytes in turn, all over the heap."""

from __future__ import annotations

import ctypes

# Of glibc's mallopt(3). Each thread would have an arena of its own, and each arena keep what it once had.
TRIM_THRESHOLD, MMAP_THRESHOLD, ARENA_MAX = -1, -3, -8
KEPT_BYTES = 16 << 20  # free at the heap's end: to give back and take again every part would cost as much as to hash it
MAPPED_BYTES = 8 << 20  # of one block, above what a part takes


def bound_arenas() -> None:
    """Has glibc use one arena and give back what lies free at its end. Elsewhere nothing happens."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt:
        for option, value in ((ARENA_MAX, 1), (TRIM_THRESHOLD, KEPT_BYTES), (MMAP_THRESHOLD, MAPPED_BYTES)):
            mallopt(option, value)
