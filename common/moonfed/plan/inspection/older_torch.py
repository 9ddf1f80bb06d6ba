"""The oldest release of torch in which a plan's calls mean what they mean in this one.

`older_operators.txt` has the operators that older releases lack or declare otherwise (`tools.older_operators`). A plan
names neither overloads nor the arguments that are left at their defaults, so a release fits if its declaration has the
arguments that are given, and the same defaults for the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch

from moonfed.plan.inspection.functions import Use, graphs, uses
from moonfed.plan.inspection.operators import compile_archive

OLDEST_TORCH = "2.4"  # the first release with torch.ops.aten._fused_sgd_ on the CPU
FILE = Path(__file__).with_name("older_operators.txt")
ABSENT = "-"
SYNTAX = "prim::"  # TorchScript's own operations, most of which no registry has
_Schema = Any  # torch's bindings are untyped


def minimum_torch(archive: bytes) -> str:
    """Return the oldest release of torch that a plan runs in, such as `2.4`; if no listed one fits, this release."""
    return requirements(archive)[0]


def requirements(archive: bytes) -> tuple[str, tuple[str, ...]]:
    """Return the oldest release of torch that a plan runs in, and the operators that it calls, without overloads."""
    used = uses(graphs(compile_archive(archive)[0]))
    called = {use.operator.partition(".")[0] for use in used}
    return _oldest(used), tuple(sorted(name for name in called if not name.startswith(SYNTAX)))


def _oldest(used: Sequence[Use]) -> str:
    releases = list(older_operators())
    newer = [*releases[1:], ".".join(torch.__version__.split(".")[:2])]
    found = OLDEST_TORCH
    for release, following in zip(releases, newer, strict=True):
        if not all(_fits(use, older_operators()[release]) for use in used):
            found = following
    return found


@cache
def older_operators() -> dict[str, dict[str, _Schema | None]]:
    """Return by release, oldest first, the operators that differ, by name with overload; None for an absent one."""
    found: dict[str, dict[str, _Schema | None]] = {}
    for line in FILE.read_text("utf-8").splitlines():
        if line and not line.startswith("#"):
            release, name, declared = line.split(maxsplit=2)
            schema = None if declared == ABSENT else _parsed(f"{name}{declared}")
            found.setdefault(release, {})[name] = schema
    return found


def _parsed(text: str) -> _Schema:
    torch_c: Any = torch._C
    return torch_c.parse_schema(text)


def _fits(use: Use, differing: dict[str, _Schema | None]) -> bool:
    if use.operator not in differing:
        return True
    older, newer = differing[use.operator], _parsed(use.node.schema())
    if older is None or list(map(_kind, older.returns)) != list(map(_kind, newer.returns)):
        return False
    given = _given(use.node, newer)
    known = {argument.name: argument for argument in newer.arguments}
    return list(map(_kind, older.arguments[: len(given)])) == list(map(_kind, given)) and all(
        argument.has_default_value()
        and (argument.name not in known or argument.default_value == known[argument.name].default_value)
        for argument in older.arguments[len(given) :]
    )


def _given(node: Any, schema: _Schema) -> list[Any]:  # noqa: ANN401
    """Return the arguments that the printed code has: all up to the last one that is not left at its default."""
    count = len(schema.arguments)
    values = list(node.inputs())
    while (
        count and schema.arguments[count - 1].has_default_value() and _is_default(values[count - 1], schema, count - 1)
    ):
        count -= 1
    return list(schema.arguments[:count])


def _is_default(value: Any, schema: _Schema, position: int) -> bool:  # noqa: ANN401
    constant = value.node().kind() == "prim::Constant"
    return constant and bool(value.toIValue() == schema.arguments[position].default_value)


def _kind(argument: Any) -> tuple[str, bool, str]:  # noqa: ANN401
    return argument.name, argument.kwarg_only, argument.type.annotation_str
