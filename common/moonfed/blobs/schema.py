"""Names and shapes of a model's tensors; imports no numpy, because the device's agent uses this module."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["parameter", "statistic"]
FLOAT32, BFLOAT16, INT8, UINT8 = "F32", "BF16", "I8", "U8"  # in safetensors' spelling; all but F32 on the wire only
ITEM_SIZES = {FLOAT32: 4, BFLOAT16: 2, INT8: 1, UINT8: 1}  # bytes of one number
ITEM_SIZE = ITEM_SIZES[FLOAT32]


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One tensor of a model. Parameters are trained; statistics (BatchNorm's running ones) are only averaged."""

    name: str
    shape: tuple[int, ...]
    kind: Kind
    dtype: str = FLOAT32

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Size in bytes of its values in a file."""
        return ITEM_SIZES[self.dtype] * self.size


def model_size(specs: Sequence[TensorSpec]) -> int:
    """Return the total number of elements of all tensors."""
    return sum(spec.size for spec in specs)
