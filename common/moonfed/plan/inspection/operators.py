"""The check of a loaded plan's operators; torch has others that read and write files, memory and the log."""

from __future__ import annotations

from typing import Any

import torch

import moonfed.plan.custom_operators  # noqa: F401 - defines moonfed::sgd_, which plans may call
from moonfed.plan.inspection.enumerations import require_valid
from moonfed.plan.inspection.functions import Use, graphs, uses
from moonfed.plan.inspection.operator_list import allowed_operators, require_none

CAST = "prim::unchecked_cast"


def load_module(archive: bytes, device: str) -> torch.jit.ScriptModule:
    """Load an inspected archive; raise UnsafePlan naming an operator that is not allowed. None of it is run.

    This is `torch.jit.load`, which does not return the unit with all functions of an archive.
    """
    unit, script = compile_archive(archive, device)
    found = graphs(unit)
    used = uses(found)
    _require_allowed(set(map(_operator, used)))
    require_valid(found, used, script._type().qualified_name())
    module: torch.jit.ScriptModule = torch.jit._recursive.wrap_cpp_module(script)  # type: ignore[no-untyped-call]
    return module


def compile_archive(archive: bytes, device: str = "cpu") -> tuple[Any, Any]:
    """Return the compilation unit of an archive, with all its functions, and its module; no function is run."""
    torch_c: Any = torch._C
    unit = torch_c.CompilationUnit()
    return unit, torch_c.import_ir_module_from_buffer(unit, archive, torch.device(device), {}, False)


def _require_allowed(found: set[str]) -> None:
    allowed = allowed_operators()
    require_none([name for name in found if not ({name, f"{name.partition('.')[0]}.*"} & allowed)])


def operators(unit: Any) -> set[str]:  # noqa: ANN401 - torch's bindings are untyped
    """Return the operators in all functions and methods of a compilation unit."""
    return set(map(_operator, uses(graphs(unit))))


def _operator(use: Use) -> str:
    return f"{CAST} to an unrelated type" if use.operator == CAST and not _is_safe_cast(use.node) else use.operator


def _is_safe_cast(node: Any) -> bool:  # noqa: ANN401
    """Return whether a cast only drops None, or its result is checked wherever it is used.

    Torch reads the attributes of an object, and the elements of a tuple, at their positions in the type that the code
    claims, which may be beyond the end of an object of another class.
    """
    given, claimed = node.input().type(), node.output().type()
    placed = any(word in claimed.annotation_str for word in ("__torch__", "Tuple"))
    return not placed or bool(given.isSubtypeOf(torch.OptionalType(claimed)))
