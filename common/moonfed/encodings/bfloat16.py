"""bfloat16: the upper halves of the float32s, rounded to the nearest, ties to even; half the bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from moonfed.blobs.schema import BFLOAT16
from moonfed.encodings.number_format import Floats, NumberFormat, Numbers, TensorPart

_INFINITY = 0x7F80
_LARGEST_WORD = 0x7F7F
_SIGN = 0x8000


@dataclass(frozen=True, slots=True, kw_only=True)
class Bfloat16(NumberFormat):
    """The upper halves of the float32s."""

    name: ClassVar[str] = "bfloat16"
    parts: ClassVar[tuple[TensorPart, ...]] = (TensorPart("", BFLOAT16),)

    def encode(self, values: Floats) -> tuple[Numbers, ...]:
        """Return the upper halves, rounded; the largest bfloat16 for what would round to infinity."""
        bits = values.view(np.uint32)
        words = ((bits + (0x7FFF + ((bits >> 16) & 1))) >> 16).astype(np.uint16)
        finite = np.where(words & ~np.uint16(_SIGN) == _INFINITY, words & _SIGN | _LARGEST_WORD, words)
        return (finite.astype("<u2"),)

    def decode(self, numbers: Sequence[Numbers], size: int) -> Floats:
        """Return the values; the lower halves are 0."""
        return (numbers[0].astype(np.uint32) << 16).view(np.float32)
