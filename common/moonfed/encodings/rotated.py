"""rotated4, rotated1: 16 levels, or the sign, of rotated blocks of 256 values, with one scale each; for changes only.

A rotation makes the values of a block nearly normal, whatever they were, so that few levels fit them (Suresh et al.,
ICML 2017; Vargaftik et al., NeurIPS 2021). It flips fixed signs and multiplies by the Hadamard matrix H. A file has the
levels, which are odd whole numbers k, packed, and for each block a scale s: the block's values are the sums H·k, which
are exact, times s and the signs. The values after the last whole block are k·s. A tensor smaller than a block is int8.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from moonfed.blobs.schema import FLOAT32, UINT8
from moonfed.encodings.int8 import Int8
from moonfed.encodings.number_format import BLOCK, Floats, NumberFormat, Numbers, TensorPart

_RANDOM_BITS = np.unpackbits(np.frombuffer(hashlib.sha256(b"moonfed rotation").digest(), np.uint8))
_SIGNS = (1 - 2 * _RANDOM_BITS.astype(np.float32))[:, None]  # [BLOCK, 1]
_UNIT = np.float32(2.0**-12)  # sums are of values times this, so that none is infinite
# With it, values are below 2**102, so that the difference from any float32 is finite.
_LARGEST_SCALE = np.float32(2.0**90)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotated(NumberFormat):
    """Levels of rotated blocks: odd multiples of the block's scale. Arrays of blocks are [BLOCK, blocks]."""

    downlink: ClassVar[bool] = False
    bits: ClassVar[int]  # of a level
    spacing: ClassVar[float]  # half the distance of two levels, as a multiple of the block's mean magnitude

    def of_size(self, size: int) -> NumberFormat:
        """Return this format; for a tensor smaller than a block, int8."""
        return self if size >= BLOCK else Int8()

    def encode(self, values: Floats) -> tuple[Numbers, ...]:
        """Return the scales and the packed levels."""
        whole = values.size - values.size % BLOCK
        blocks = np.multiply(values[:whole].reshape(-1, BLOCK).T, _SIGNS * (_UNIT / BLOCK), order="C")
        encoded = [self._quantise(_transform(blocks))]
        if whole < values.size:
            encoded.append(self._quantise(values[whole:, None] * _UNIT))
        scales, levels = zip(*encoded, strict=True)
        return np.concatenate(scales), np.concatenate([packed.T.ravel() for packed in levels])

    def decode(self, numbers: Sequence[Numbers], size: int) -> Floats:
        """Return the levels times their scale, rotated back."""
        scales, packed = numbers
        blocks, rest = divmod(size, BLOCK)
        block_bytes = BLOCK * self.bits // 8
        rotated = self._unpack(packed[: blocks * block_bytes].reshape(blocks, block_bytes).T)
        tail = self._unpack(packed[blocks * block_bytes :, None])[:rest, 0]
        values = np.empty(size, np.float32)
        values[: size - rest].reshape(blocks, BLOCK).T[:] = _transform(rotated) * scales[:blocks] * _SIGNS
        values[size - rest :] = tail * scales[blocks:]
        return values

    def find_problem(self, numbers: Sequence[Numbers], size: int) -> str:
        """Reject scales that are not finite, below 0 or too large for finite values, and bits after the last level."""
        scales, packed = numbers
        if not ((scales >= 0) & (scales <= _LARGEST_SCALE)).all():
            return "has a scale below 0, above 2**90 or NaN; scales must be from 0 to 2**90"
        used = size * self.bits % 8
        return "has bits after its last value; they must be 0" if used and packed[-1] >> used else ""

    def _quantise(self, columns: Floats) -> tuple[Floats, Numbers]:
        """Return a scale [n] for each column of [k, n], and the packed levels [bytes, n]."""
        means = _sums(np.abs(columns)) / np.float32(len(columns))
        scales = np.minimum(means * np.float32(self.spacing), _LARGEST_SCALE * _UNIT)
        half = 1 << (self.bits - 1)
        codes = np.floor(columns / np.where(scales > 0, 2 * scales, np.float32(1)))
        codes = np.clip(codes, -half, half - 1) + half
        return scales / _UNIT, self._pack(codes.astype(np.uint8))

    def _pack(self, codes: Numbers) -> Numbers:
        """Return codes [k, n] as bytes [k * bits / 8, n], the first one in the lowest bits."""
        per_byte = 8 // self.bits
        padded = np.pad(codes, ((0, -len(codes) % per_byte), (0, 0)))
        packed = np.zeros((len(padded) // per_byte, codes.shape[1]), np.uint8)
        for place in range(per_byte):
            packed |= padded[place::per_byte] << np.uint8(self.bits * place)
        return packed

    def _unpack(self, packed: Numbers) -> Numbers:
        """Return the levels of bytes: code 0 is the lowest, and two neighbours differ by 2."""
        per_byte, highest = 8 // self.bits, (1 << self.bits) - 1
        codes = np.empty((len(packed) * per_byte, packed.shape[1]), np.int16)
        for place in range(per_byte):
            codes[place::per_byte] = packed >> np.uint8(self.bits * place) & np.uint8(highest)
        return 2 * codes - highest


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotated4(Rotated):
    """Four bits for each value. The spacing is the best for normal values (Max, IRE Trans. Inf. Theory, 1960)."""

    name: ClassVar[str] = "rotated4"
    parts: ClassVar[tuple[TensorPart, ...]] = (TensorPart("scales:", FLOAT32, BLOCK), TensorPart("levels:", UINT8, 2))
    bits: ClassVar[int] = 4
    spacing: ClassVar[float] = 0.21  # levels are 0.335 standard deviations apart


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotated1(Rotated):
    """One bit for each value, its sign. The scale with the least squared error is the mean magnitude."""

    name: ClassVar[str] = "rotated1"
    parts: ClassVar[tuple[TensorPart, ...]] = (TensorPart("scales:", FLOAT32, BLOCK), TensorPart("levels:", UINT8, 8))
    bits: ClassVar[int] = 1
    spacing: ClassVar[float] = 1.0


def _transform(columns: Numbers) -> Numbers:
    """Return H times the columns of [BLOCK, n]; a fast Walsh-Hadamard transform, whose order of additions is fixed."""
    half = BLOCK // 2
    for _ in range(BLOCK.bit_length() - 1):
        pairs = np.empty_like(columns)
        np.add(columns[:half], columns[half:], out=pairs[0::2])
        np.subtract(columns[:half], columns[half:], out=pairs[1::2])
        columns = pairs
    return columns


def _sums(columns: Floats) -> Floats:
    """Return the sums [n] of columns of [k, n], added in a fixed order, which NumPy's own sum does not promise."""
    while len(columns) > 1:
        half = len(columns) // 2
        columns = np.concatenate([columns[:half] + columns[half : 2 * half], columns[2 * half :]])
    total: Floats = columns[0]
    return total
