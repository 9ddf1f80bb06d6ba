"""The contract imports none of the parts that build on it, and the shared code knows no messages."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.test_mirroring import CONTRACT, PARTS

ROOT = Path(__file__).parents[2]
ABOVE = set(PARTS) - {*CONTRACT}
MESSAGES = {path.parent.name for path in (ROOT / "proto" / "moonfed").glob("*/*.py")}


def imported(source: str) -> set[str]:
    """Every module named in an import statement, with the names imported from it."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize(
    ("folder", "forbidden"), [("common", ABOVE | MESSAGES), ("proto", ABOVE)], ids=["common", "proto"]
)
def test_the_contract_imports_nothing_above_it(folder: str, forbidden: set[str]) -> None:
    sources = list((ROOT / folder / "moonfed").rglob("*.py"))
    assert len(sources) > 20
    names = {(path.name, name) for path in sources for name in imported(path.read_text())}
    assert {
        (file, name) for file, name in names if name.startswith("moonfed.") and name.split(".")[1] in forbidden
    } == set()
