"""Arrays that server rules and reducers are given, read-only, and those that they return, of one shape.

NumPy would broadcast other shapes into the global model.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from moonfed.errors import InvalidInput
from moonfed.server_rules.server_rule import Float64Array


def read_only(values: Float64Array) -> Float64Array:
    """Return a view of an array in which nothing can be changed: a change in place raises ValueError."""
    view = values.view()
    view.flags.writeable = False
    return view


def require_shape(owner: str, values: npt.ArrayLike, shape: tuple[int, ...]) -> None:
    """Raise InvalidInput unless values have a shape; `owner`: what returned them, such as `reducer 'median'`."""
    found = np.shape(values)
    if found != shape:
        raise InvalidInput(
            f"{owner} returned values of shape {list(found)}; it must return {list(shape)}",
            field=f"shape of {owner}",
            value=list(found),
        )
