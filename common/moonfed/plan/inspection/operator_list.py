"""The names of the operators that a plan may use, without torch.

`operators.txt` is generated from moonfed's own plans (`make operators`); `reviewed_operators.txt` lists further ones
that users' networks need; the source of each was reviewed for what it can access.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from pathlib import Path

from moonfed.errors import UnsafePlan
from moonfed.formatting import count

GENERATED, REVIEWED = "operators.txt", "reviewed_operators.txt"


@cache
def allowed_operators() -> frozenset[str]:
    """Return the names of all operators that a plan may use; `aten::add.*` stands for all overloads of one."""
    return frozenset(name for file in (GENERATED, REVIEWED) for name in listed(file))


@cache
def allowed_names() -> frozenset[str]:
    """Return their names without overloads, as the source of a plan has them: `aten::add`."""
    return frozenset(name.partition(".")[0] for name in allowed_operators())


def require_none(refused: Collection[str]) -> None:
    """Raise UnsafePlan naming the first of some operators, unless there are none."""
    if refused:
        others = f", and {count(len(refused) - 1, 'other')}" if len(refused) > 1 else ""
        raise UnsafePlan(
            f"the plan uses the operator {min(refused)[:100]!r}{others}, which no plan may use",
            field="operator",
            value=min(refused)[:100],
        )


def listed(file: str) -> list[str]:
    """Return the lines of one of the two lists, without comments."""
    lines = Path(__file__).with_name(file).read_text("utf-8").splitlines()
    return [line.split("#")[0].strip() for line in lines if line.split("#")[0].strip()]
