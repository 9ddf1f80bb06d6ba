"""float32: the numbers as they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from moonfed.blobs.schema import FLOAT32
from moonfed.encodings.number_format import Floats, NumberFormat, Numbers, TensorPart


@dataclass(frozen=True, slots=True, kw_only=True)
class Float32(NumberFormat):
    """The numbers as they are."""

    name: ClassVar[str] = "float32"
    parts: ClassVar[tuple[TensorPart, ...]] = (TensorPart("", FLOAT32),)

    def encode(self, values: Floats) -> tuple[Numbers, ...]:
        """Return the values."""
        return (values,)

    def decode(self, numbers: Sequence[Numbers], size: int) -> Floats:
        """Return the values."""
        return numbers[0]
