"""The operators that a plan may use; torch has others that read and write files, memory and the log.

`operators.txt` is generated from moonfed's own plans (`make operators`); `reviewed_operators.txt` holds further ones
that networks of users need, each of which was read for what it can reach.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import torch

from moonfed.errors import UnsafePlan

GENERATED, REVIEWED = "operators.txt", "reviewed_operators.txt"


@cache
def allowed_operators() -> frozenset[str]:
    """Return the names of all operators that a plan may use; `aten::add.*` stands for all overloads of one."""
    return frozenset(name for file in (GENERATED, REVIEWED) for name in _names(file))


def require_allowed_operators(module: torch.jit.ScriptModule) -> None:
    """Raise UnsafePlan naming the first operator of a loaded module that is not allowed. Nothing of it is run."""
    allowed = allowed_operators()
    unknown = sorted(name for name in operators(module) if not ({name, f"{name.partition('.')[0]}.*"} & allowed))
    if unknown:
        others = f", and {len(unknown) - 1} others" if len(unknown) > 1 else ""
        raise UnsafePlan(f"the plan uses the operator {unknown[0]!r}{others}, which no plan may use")


def operators(module: torch.jit.ScriptModule) -> set[str]:
    """Return the operators in all methods of a module and its submodules, with everything they call."""
    found: set[str] = set()
    for part in module.modules():
        script: Any = part._c
        for name in script._method_names():
            graph = script._get_method(name).graph.copy()
            torch._C._jit_pass_inline(graph)
            found.update(map(_operator, _nodes(graph)))
    return found


def _nodes(block: Any) -> Iterator[Any]:  # noqa: ANN401 - graphs are untyped
    for node in block.nodes():
        yield node
        for inner in node.blocks():
            yield from _nodes(inner)
        for attribute in node.attributeNames():
            kind = node.kindOf(attribute)
            for graph in (node.g(attribute),) if kind == "g" else node.gs(attribute) if kind == "gs" else ():
                yield from _nodes(graph)


def _operator(node: Any) -> str:  # noqa: ANN401
    schema: str = node.schema()
    return str(node.kind()) if schema == "(no schema)" else schema.split("(", 1)[0]


def _names(file: str) -> list[str]:
    lines = Path(__file__).with_name(file).read_text("utf-8").splitlines()
    return [line.split("#")[0].strip() for line in lines if line.split("#")[0].strip()]
