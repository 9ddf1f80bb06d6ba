"""The oldest release of torch in which a plan's calls mean what they mean in this one.

`older_operators.txt` has the operators that older releases lack or declare otherwise (`tools.older_operators`). A plan
does not have the arguments that are left at their defaults, so a release fits if its declaration has those that are
given, and the same defaults for the others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Call:
    """A call of an operator, named with its overload; `keywords`: of the arguments after the positional ones."""

    operator: str
    positional: int
    keywords: Collection[str] = ()


def minimum_torch(archive: bytes) -> str:
    """Return the oldest release of torch that a plan runs in, such as `2.4`; if no listed one fits, this release."""
    return requirements(archive)[0]


def requirements(archive: bytes) -> tuple[str, tuple[str, ...]]:
    """Return the oldest release of torch that a plan runs in, and the operators that it calls, without overloads."""
    used = uses(graphs(compile_archive(archive)[0]))
    called = {use.operator.partition(".")[0] for use in used}
    oldest = oldest_release(_call(use) for use in used if _differs(use.operator))
    return oldest, tuple(sorted(name for name in called if not name.startswith(SYNTAX)))


def oldest_release(calls: Iterable[Call]) -> str:
    """Return the oldest release of torch that has all of these calls; if no listed one has, this release."""
    made = [call for call in calls if _differs(call.operator)]
    releases = list(older_operators())
    newer = [*releases[1:], ".".join(torch.__version__.split(".")[:2])]
    found = OLDEST_TORCH
    for release, following in zip(releases, newer, strict=True):
        if not all(_fits(call, older_operators()[release]) for call in made):
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


def _differs(operator: str) -> bool:
    return any(operator in differing for differing in older_operators().values())


@cache
def _declared(operator: str) -> _Schema:
    """Return this torch's declaration."""
    torch_c: Any = torch._C
    plain, _, overload = operator.partition(".")
    schemas = torch_c._jit_get_schemas_for_operator(plain)
    return next(schema for schema in schemas if schema.overload_name == overload)


def _fits(call: Call, differing: dict[str, _Schema | None]) -> bool:
    if call.operator not in differing:
        return True
    older, newer = differing[call.operator], _declared(call.operator)
    if older is None or list(map(_kind, older.returns)) != list(map(_kind, newer.returns)):
        return False
    count = call.positional
    has, known = ({argument.name: argument for argument in schema.arguments} for schema in (older, newer))
    return (
        list(map(_kind, older.arguments[:count])) == list(map(_kind, newer.arguments[:count]))
        and all(name in has and _kind(has[name]) == _kind(known[name]) for name in call.keywords)
        and all(
            argument.has_default_value()
            and (argument.name not in known or argument.default_value == known[argument.name].default_value)
            for argument in older.arguments[count:]
            if argument.name not in call.keywords
        )
    )


def _call(use: Use) -> Call:
    """Return a node's call: the printed code has all arguments up to the last one that is not left at its default."""
    arguments = _declared(use.operator).arguments
    count = len(arguments)
    values = list(use.node.inputs())
    while count and arguments[count - 1].has_default_value() and _is_default(values[count - 1], arguments[count - 1]):
        count -= 1
    return Call(use.operator, count)


def _is_default(value: Any, argument: Any) -> bool:  # noqa: ANN401
    return value.node().kind() == "prim::Constant" and bool(value.toIValue() == argument.default_value)


def _kind(argument: Any) -> tuple[str, bool, str]:  # noqa: ANN401
    return argument.name, argument.kwarg_only, argument.type.annotation_str
