"""The operators that the installed torch has."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

import moonfed.plan.custom_operators  # noqa: F401 - defines moonfed::sgd_, which plans may call
from moonfed.errors import VersionMismatch
from moonfed.formatting import count


def require_operators(called: Iterable[str]) -> None:
    """Raise VersionMismatch naming an operator that this torch lacks, of those that a plan calls, without overloads."""
    torch_c: Any = torch._C
    lacking = sorted(name for name in called if not torch_c._jit_get_schemas_for_operator(name))
    if lacking:
        others = f" and {count(len(lacking) - 1, 'other')}" if len(lacking) > 1 else ""
        raise VersionMismatch(
            f"this plan calls {lacking[0]}{others}, which torch {torch.__version__} of this device lacks"
        )
