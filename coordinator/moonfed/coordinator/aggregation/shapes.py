"""Shapes of what server rules and reducers return: NumPy would broadcast others into the global model."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from moonfed.errors import InvalidInput


def require_shape(owner: str, values: npt.ArrayLike, shape: tuple[int, ...]) -> None:
    """Raise InvalidInput unless values have a shape; `owner`: what returned them, such as `reducer 'median'`."""
    found = np.shape(values)
    if found != shape:
        raise InvalidInput(f"{owner} returned values of shape {list(found)}; it must return {list(shape)}")
