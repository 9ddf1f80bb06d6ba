"""The interface of a number format: float32 to fewer bits and back, the same on every machine, to the bit.

A format works on pieces of a tensor, so that memory does not grow with the model. Each of its parts is a tensor of the
encoded file, one element of which represents a fixed number of the tensor's values.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from moonfed.blobs.schema import BFLOAT16, FLOAT32, INT8, UINT8

BLOCK = 256  # values that may share something, such as a scale
Floats = npt.NDArray[np.float32]
Numbers = npt.NDArray[Any]  # of a part's dtype
# numpy has no bfloat16
DTYPES: Mapping[str, npt.DTypeLike] = {FLOAT32: "<f4", BFLOAT16: "<u2", INT8: "i1", UINT8: "u1"}


@dataclass(frozen=True, slots=True)
class TensorPart:
    """One of a tensor's parts in an encoded file, named by the prefix and the tensor's own name."""

    prefix: str
    dtype: str  # F32, BF16, I8 or U8
    values: int = 1  # of the tensor that one element represents: a power of two up to BLOCK

    def elements(self, size: int) -> int:
        """Return the number of elements for `size` values; the last one may represent fewer."""
        return -(-size // self.values)


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberFormat(ABC):
    """A format of a model's parameters; statistics are bfloat16 wherever parameters are not float32."""

    name: ClassVar[str]  # in the registry, on command lines and in the contract; `+zstd` may follow it
    parts: ClassVar[tuple[TensorPart, ...]]
    downlink: ClassVar[bool] = True  # False: too coarse for models, for changes of models only

    def of_size(self, size: int) -> NumberFormat:
        """Return the format of a whole tensor of this size: this one, unless it needs a larger tensor."""
        return self

    @abstractmethod
    def encode(self, values: Floats) -> tuple[Numbers, ...]:
        """Encode finite values [n], which begin with a block; an array for each part, in their order."""

    @abstractmethod
    def decode(self, numbers: Sequence[Numbers], size: int) -> Floats:
        """Return the values [size] that encoded parts represent. Invalid parts may give infinities and NaN."""

    def find_problem(self, numbers: Sequence[Numbers], size: int) -> str:
        """Return the reason to reject received parts of `size` values, to follow the tensor's name.

        Empty if they are valid. The parts have the right dtypes and numbers of elements.
        """
        return ""
