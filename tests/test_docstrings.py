"""Docstrings open with a verb or a noun, never with a clause used as a noun."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PARTS = (
    "common",
    "proto",
    "client",
    "examples",
    "export",
    "serving",
    "release",
    "edge_client",
    "coordinator",
    "experiments",
    "benchmarks",
    "tools",
    "tests",
)
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
REJECTED = re.compile(r"(What|Who|Whose|Whether|Where|How|Of|Those|That|Both)\b")


def docstrings(file: Path) -> Iterator[tuple[int, str]]:
    """Yield line and text of every docstring, also of those below attributes."""
    for node in ast.walk(ast.parse(file.read_text())):
        for statement in getattr(node, "body", ()) if isinstance(node, DOCUMENTED) else ():
            match statement:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    yield statement.lineno, text.strip()


def sources(part: str) -> list[Path]:
    return [file for file in sorted((ROOT / part).rglob("*.py")) if not file.match("v1/*_pb2*.py")]


@pytest.mark.parametrize("part", PARTS)
def test_no_docstring_opens_with_a_clause_used_as_a_noun(part: str) -> None:
    found = [
        f"{file.relative_to(ROOT)}:{line}: {text.splitlines()[0]}"
        for file in sources(part)
        for line, text in docstrings(file)
        if REJECTED.match(text)
    ]
    assert not found, "\n".join(found)
