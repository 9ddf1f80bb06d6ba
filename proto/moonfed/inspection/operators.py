"""The operators that a plan may use; torch has others that read and write files, memory and the log.

`operators.txt` is generated from moonfed's own plans (`make operators`); `reviewed_operators.txt` lists further ones
that users' networks need; the source of each was reviewed for what it can access.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import torch

import moonfed.plan_operators  # noqa: F401 - defines moonfed::sgd_, which plans may call
from moonfed.errors import UnsafePlan

GENERATED, REVIEWED = "operators.txt", "reviewed_operators.txt"
CAST = "prim::unchecked_cast"


@cache
def allowed_operators() -> frozenset[str]:
    """Return the names of all operators that a plan may use; `aten::add.*` stands for all overloads of one."""
    return frozenset(name for file in (GENERATED, REVIEWED) for name in _names(file))


def load_module(archive: bytes, device: str) -> torch.jit.ScriptModule:
    """Load an inspected archive; raise UnsafePlan naming an operator that is not allowed. None of it is run.

    This is `torch.jit.load`, which does not return the unit with all functions of an archive.
    """
    unit, script = compile_archive(archive, device)
    _require_allowed(operators(unit))
    module: torch.jit.ScriptModule = torch.jit._recursive.wrap_cpp_module(script)  # type: ignore[no-untyped-call]
    return module


def compile_archive(archive: bytes, device: str = "cpu") -> tuple[Any, Any]:
    """Return the compilation unit of an archive, with all its functions, and its module; no function is run."""
    torch_c: Any = torch._C
    unit = torch_c.CompilationUnit()
    return unit, torch_c.import_ir_module_from_buffer(unit, archive, torch.device(device), {}, False)


def _require_allowed(found: set[str]) -> None:
    allowed = allowed_operators()
    unknown = sorted(name for name in found if not ({name, f"{name.partition('.')[0]}.*"} & allowed))
    if unknown:
        others = f", and {len(unknown) - 1} others" if len(unknown) > 1 else ""
        raise UnsafePlan(f"the plan uses the operator {unknown[0]!r}{others}, which no plan may use")


def operators(unit: Any) -> set[str]:  # noqa: ANN401 - torch's bindings are untyped
    """Return the operators in all functions and methods of a compilation unit.

    Torch compiles a function when its graph is requested, which may define the functions that it calls.
    """
    found: set[str] = set()
    seen: set[str] = set()
    while new := [function for function in unit.get_functions() if function.qualified_name not in seen]:
        for function in new:
            seen.add(function.qualified_name)
            found.update(map(_operator, _nodes(function.graph)))
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
    if node.kind() == CAST and not _is_safe_cast(node):
        return f"{CAST} to an unrelated type"
    schema: str = node.schema()
    return str(node.kind()) if schema == "(no schema)" else schema.split("(", 1)[0]


def _is_safe_cast(node: Any) -> bool:  # noqa: ANN401
    """Return whether a cast only drops None, or its result is checked wherever it is used.

    Torch takes the attributes of an object, and the elements of a tuple, by their places in the type that code claims:
    in an object of another class, that is memory beyond it.
    """
    given, claimed = node.input().type(), node.output().type()
    placed = any(word in claimed.annotation_str for word in ("__torch__", "Tuple"))
    return not placed or bool(given.isSubtypeOf(torch.OptionalType(claimed)))


def _names(file: str) -> list[str]:
    lines = Path(__file__).with_name(file).read_text("utf-8").splitlines()
    return [line.split("#")[0].strip() for line in lines if line.split("#")[0].strip()]
