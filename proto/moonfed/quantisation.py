"""The arithmetic of encodings: float32 to fewer bits and back, the same on every machine, to the bit.

bfloat16 rounds to the nearest, ties to even. int8 is symmetric, with one float32 scale for each block of 256 values:
the largest magnitude of a block becomes 127, and no value is off by more than half a scale.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from moonfed.encodings import BLOCK, blocks
from moonfed.schema import BFLOAT16, FLOAT32, INT8

Floats = npt.NDArray[np.float32]
Numbers = npt.NDArray[Any]  # of a dtype's own
DTYPES: Mapping[str, npt.DTypeLike] = {FLOAT32: "<f4", BFLOAT16: "<u2", INT8: "i1"}  # numpy has no bfloat16
NO_SCALES: Floats = np.zeros(0, np.float32)

LARGEST = 127
_INFINITY, _LARGEST_WORD, _SIGN = 0x7F80, 0x7F7F, 0x8000
# With a larger one, the largest float32 would come back as infinity.
_LARGEST_SCALE = np.nextafter(np.finfo(np.float32).max / np.float32(LARGEST), np.float32(0))


def quantise(values: Floats, dtype: str) -> tuple[Numbers, Floats]:
    """Finite values [n], which begin with a block, as numbers [n] of a dtype; scales [blocks] for int8, else [0]."""
    if dtype == INT8:
        return _to_int8(values)
    return (_to_bfloat16(values) if dtype == BFLOAT16 else values), NO_SCALES


def restore(numbers: Numbers, scales: Floats) -> Floats:
    """The values that `quantise`d numbers stand for. Senseless ones give infinities and NaN."""
    if numbers.dtype == np.int8:
        with np.errstate(over="ignore"):
            return numbers.astype(np.float32) * np.repeat(scales, BLOCK)[: numbers.size]
    return (numbers.astype(np.uint32) << 16).view(np.float32) if numbers.dtype == np.uint16 else numbers


def _to_bfloat16(values: Floats) -> Numbers:
    """The upper halves, rounded; what would round to infinity becomes the largest bfloat16."""
    bits = values.view(np.uint32)
    words = ((bits + (0x7FFF + ((bits >> 16) & 1))) >> 16).astype(np.uint16)
    return np.where(words & ~np.uint16(_SIGN) == _INFINITY, words & _SIGN | _LARGEST_WORD, words).astype("<u2")


def _to_int8(values: Floats) -> tuple[Numbers, Floats]:
    padded = np.zeros((blocks(values.size), BLOCK), np.float32)
    padded.reshape(-1)[: values.size] = values
    scales = np.minimum(np.abs(padded).max(axis=1) / np.float32(LARGEST), _LARGEST_SCALE)
    divisors = np.where(scales > 0, scales, np.float32(1))  # a block of zeros, or of less than float32 can divide
    whole = np.clip(np.rint(padded / divisors[:, None]), -LARGEST, LARGEST).astype(np.int8)
    return whole.reshape(-1)[: values.size], scales
