"""No part of moonfed unpickles, but for one in the sandbox: `torch.load` and numpy's pickles run code from the file."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.test_mirroring import PARTS

ROOT = Path(__file__).parents[4]
FOLDERS = (*PARTS, "examples", "tools")
SANDBOXED = {"export/moonfed/export/weights/state_dict_task.py": {"torch.load"}}  # what users start from
CALLS = {
    "torch.load",
    "torch.serialization.load",
    "torch.hub.load",
    "pickle.load",
    "pickle.loads",
    "pickle.Unpickler",
    "joblib.load",
    "marshal.loads",
}


def forbidden(source: str) -> Iterator[str]:
    """Yield a module's forbidden calls, imports and permissions."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Attribute() if (name := ast.unparse(node)) in CALLS:
                yield name
            case ast.ImportFrom(module=str(module), names=names):
                yield from (f"{module}.{each.name}" for each in names if f"{module}.{each.name}" in CALLS)
            case ast.keyword(arg="allow_pickle", value=ast.Constant(value=True)):
                yield "allow_pickle"


@pytest.mark.parametrize("part", FOLDERS)
def test_nothing_is_unpickled(part: str) -> None:
    found = {
        str(path.relative_to(ROOT)): names
        for path in (ROOT / part).rglob("*.py")
        if (names := set(forbidden(path.read_text())))
    }
    assert found == {name: calls for name, calls in SANDBOXED.items() if name.startswith(f"{part}/")}


def test_the_sandbox_unpickles_tensors_only() -> None:
    for name in SANDBOXED:
        calls = [node for node in ast.walk(ast.parse((ROOT / name).read_text())) if isinstance(node, ast.Call)]
        loads = [node for node in calls if ast.unparse(node.func) in CALLS]
        assert loads
        assert all({"weights_only=True"} <= {ast.unparse(each) for each in node.keywords} for node in loads)


def test_calls_are_found() -> None:
    source = "import torch\ntorch.load(x)\nfrom pickle import loads\nnumpy.load(y, allow_pickle=True)\n"
    assert set(forbidden(source)) == {"torch.load", "pickle.loads", "allow_pickle"}
