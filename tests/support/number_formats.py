"""Names of encodings, and numbers encoded without files, for tests of encodings."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from moonfed.blobs.schema import BFLOAT16
from moonfed.encodings import known_encodings
from moonfed.encodings.bfloat16 import Bfloat16
from moonfed.encodings.int8 import Int8
from moonfed.encodings.number_format import Floats, NumberFormat, Numbers

KNOWN = known_encodings()
LARGEST_BFLOAT16 = (2 - 2**-7) * 2.0**127
finite = st.floats(width=32, allow_nan=False, allow_infinity=False)


def quantise(values: Floats, dtype: str) -> tuple[Numbers, Floats]:
    if dtype == BFLOAT16:
        return Bfloat16().encode(values)[0], np.zeros(0, np.float32)
    scales, numbers = Int8().encode(values)
    return numbers, scales


def restore(numbers: Numbers, scales: Floats) -> Floats:
    size = numbers.size
    return Bfloat16().decode([numbers], size) if numbers.dtype == np.uint16 else Int8().decode([scales, numbers], size)


def round_trip(number_format: NumberFormat, values: Floats) -> Floats:
    return number_format.decode(number_format.encode(values), values.size)
