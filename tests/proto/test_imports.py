"""The contract imports none of the parts that build on it."""

from __future__ import annotations

import ast
from pathlib import Path

import moonfed.v1

CONTRACT = Path(next(iter(moonfed.v1.__path__))).parent
PARTS = {"client", "export", "serving", "release", "edge_client", "coordinator", "experiments"}


def imported(source: str) -> set[str]:
    """Every module named in an import statement, with the names imported from it."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def test_the_contract_imports_no_part() -> None:
    sources = list(CONTRACT.rglob("*.py"))
    assert len(sources) > 20
    names = {(path.name, name) for path in sources for name in imported(path.read_text())}
    assert {
        (file, name) for file, name in names if name.startswith("moonfed.") and name.split(".")[1] in PARTS
    } == set()
