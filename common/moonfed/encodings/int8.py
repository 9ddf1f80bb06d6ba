"""int8: whole numbers from -127 to 127, with one float32 scale per block of 256 values; a quarter of the bytes.

It is symmetric: the largest magnitude of a block becomes 127, and no value is off by more than half a scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from moonfed.blobs.schema import FLOAT32, INT8
from moonfed.encodings.number_format import BLOCK, Floats, NumberFormat, Numbers, TensorPart

LARGEST = 127
# With a larger one, the largest float32 would be decoded as infinity.
_LARGEST_SCALE = np.nextafter(np.finfo(np.float32).max / np.float32(LARGEST), np.float32(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Int8(NumberFormat):
    """Whole numbers from -127 to 127, with one scale for each block."""

    name: ClassVar[str] = "int8"
    parts: ClassVar[tuple[TensorPart, ...]] = (TensorPart("scales:", FLOAT32, BLOCK), TensorPart("values:", INT8))

    def encode(self, values: Floats) -> tuple[Numbers, ...]:
        """Return the scales and the whole numbers."""
        padded = np.zeros((self.parts[0].elements(values.size), BLOCK), np.float32)
        padded.reshape(-1)[: values.size] = values
        scales = np.minimum(np.abs(padded).max(axis=1) / np.float32(LARGEST), _LARGEST_SCALE)
        divisors = np.where(scales > 0, scales, np.float32(1))  # a block of zeros, or of less than float32 can divide
        whole = np.clip(np.rint(padded / divisors[:, None]), -LARGEST, LARGEST).astype(np.int8)
        return scales, whole.reshape(-1)[: values.size]

    def decode(self, numbers: Sequence[Numbers], size: int) -> Floats:
        """Return the products."""
        scales, whole = numbers
        with np.errstate(over="ignore"):
            products: Floats = whole.astype(np.float32) * np.repeat(scales, BLOCK)[:size]
        return products

    def find_problem(self, numbers: Sequence[Numbers], size: int) -> str:
        """Reject scales that are not finite, or below 0."""
        scales = numbers[0]
        good = (np.isfinite(scales) & (scales >= 0)).all()
        return "" if good else "has a scale below 0, NaN or infinite; scales must be finite and at least 0"
