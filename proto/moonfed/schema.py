"""What a model's tensors are called and shaped; without numpy, so that a device's light process can read a manifest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["parameter", "statistic"]
FLOAT32 = "F32"  # the one dtype exchanged so far, in safetensors' spelling
ITEM_SIZE = 4  # bytes of one float32


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


def model_size(specs: Sequence[TensorSpec]) -> int:
    """Elements of all tensors together."""
    return sum(spec.size for spec in specs)
