"""Expected refusals: an error's class and the values that it names, whatever its sentence says."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TypeVar
from unittest.mock import ANY

import pytest

from moonfed.errors import MoonfedError, shown

ErrorT = TypeVar("ErrorT", bound=MoonfedError)


def refused(
    kind: type[ErrorT], field: str, value: object = ANY, allowed: object = ANY
) -> AbstractContextManager[pytest.ExceptionInfo[ErrorT]]:
    """Return a context that expects an error of `kind` about `field`; values are equal if sentences show them alike.

    An error that another process raised has its sentence only, which must name them.
    """

    def check(error: ErrorT) -> bool:
        if error.field is None:
            assert all(each is ANY or each in str(error) for each in (field, value if value is ANY else shown(value)))
        else:
            expected = (field, value if value is ANY else shown(value), allowed)
            assert (error.field, shown(error.value), error.allowed) == expected, str(error)
        return True

    return pytest.raises(kind, check=check)
