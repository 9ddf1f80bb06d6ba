"""Secret normal noise, each value a function of a key and the value's index, so that a restart adds the same again.

A block of AES-256 in counter mode gives two uniform numbers, and these two independent normal ones (Box and Muller
1958). Logarithm and tangent differ in the last bit between NumPy's kernels for different processors: bits are the same
on one machine, and nearly all of them elsewhere, since noise is rounded before it is added.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR

from moonfed.coordinator.draw import Draw
from moonfed.server_rules.server_rule import Float64Array

BLOCK_BYTES = 16
PER_BLOCK = 2  # values
ONE = np.uint64(0x3FF0_0000_0000_0000)  # the bits of 1.0; with any mantissa, of a number in [1, 2)
EXPONENT_BITS = np.uint64(12)  # with the sign


def noise_key(draw: Draw, round_: int, attempt: int, digest: str) -> bytes:
    """Derive the key of the noise on a sum of updates; `digest`: of all that the sum depends on."""
    return draw.digest(f"noise/{round_}/{attempt}", digest)


def count_key(draw: Draw, round_: int, attempt: int, digest: str) -> bytes:
    """Derive the key of the noise on the count of updates within the clip."""
    return draw.digest(f"count/{round_}/{attempt}", digest)


class GaussianNoise:
    """Independent standard normal values by index, of one key of 32 bytes, which must serve one sum only."""

    def __init__(self, key: bytes) -> None:
        self._cipher = AES256(key)

    def normal(self, start: int, stop: int) -> Float64Array:
        """Return values start to stop, finite and the same in every range that contains them."""
        first = start // PER_BLOCK
        uniform = self._uniform(first, -(-stop // PER_BLOCK))
        radius = np.sqrt(-2 * np.log(uniform[0]))
        tangent = np.tan(np.pi * (uniform[1] - 0.5))  # of half the angle: its sine and cosine take ten times as long
        square = tangent * tangent
        radius /= 1 + square
        values = np.empty((len(radius), PER_BLOCK))
        np.multiply(radius, 1 - square, out=values[:, 0])
        np.multiply(radius, 2 * tangent, out=values[:, 1])
        return values.ravel()[start - PER_BLOCK * first : stop - PER_BLOCK * first]

    def _uniform(self, first: int, last: int) -> Float64Array:
        """Return two numbers in (0, 1], of 52 bits, for each of the blocks first to last, [2, blocks]."""
        counter = CTR(first.to_bytes(BLOCK_BYTES, "big"))
        stream = Cipher(self._cipher, counter).encryptor().update(bytes(BLOCK_BYTES * (last - first)))
        words: npt.NDArray[np.uint64] = np.frombuffer(stream, "<u8").reshape(-1, PER_BLOCK)
        return 2 - ((words.T >> EXPONENT_BITS) | ONE).view(np.float64)
