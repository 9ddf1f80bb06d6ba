"""No circle of imports: neither of files, nor of parts, nor of the console's scripts.

Every import statement of our own modules counts, also those in functions and those for type checkers. Importing a
module also runs its packages' `__init__`; that counts only where a name is imported from it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.test_mirroring import PARTS, ROOT

Graph = dict[str, set[str]]
CONTRACT = "proto"
SCRIPTS = ROOT / "coordinator" / "moonfed" / "coordinator" / "console" / "static"
SCRIPT_IMPORT = re.compile(r"""(?:\bfrom\s*|\bimport\s*\(?\s*)["']\./([^"']+)["']""")


def files() -> dict[str, Path]:
    """Every module, by its name."""
    found = {}
    for part in PARTS:
        for path in (ROOT / part / "moonfed").rglob("*.py"):
            words = path.relative_to(ROOT / part).with_suffix("").parts
            found[".".join(words[:-1] if words[-1] == "__init__" else words)] = path
    return found


def imported(source: str) -> Iterator[str]:
    """Return the names that import statements name, each as a module or a name in one."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@cache
def graph_of_files() -> Graph:
    modules = files()
    graph: Graph = {name: set() for name in modules}
    for name, path in modules.items():
        for full in imported(path.read_text()):
            module = full if full in modules else full.rpartition(".")[0]
            if module in modules and module != name:
                graph[name].add(module)
    return graph


def part_of(module: str) -> str:
    part = module.split(".")[1] if "." in module else CONTRACT
    return part if part in PARTS else CONTRACT


def graph_of_parts() -> Graph:
    graph: Graph = {part: set() for part in PARTS}
    for module, targets in graph_of_files().items():
        graph[part_of(module)] |= {part_of(target) for target in targets} - {part_of(module)}
    return graph


def graph_of_scripts() -> Graph:
    return {path.name: set(SCRIPT_IMPORT.findall(path.read_text())) for path in SCRIPTS.glob("*.js")}


def circle(graph: Graph) -> list[str]:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_a_circle_is_found() -> None:
    assert circle({"a": {"b"}, "b": {"c"}, "c": set()}) == []
    assert sorted(set(circle({"a": {"b"}, "b": {"c"}, "c": {"b"}}))) == ["b", "c"]


def test_the_graphs_have_every_kind_of_import() -> None:
    of_files, of_scripts = graph_of_files(), graph_of_scripts()
    assert "moonfed.observability.otlp" in of_files["moonfed.observability.tracing"]  # in a function
    assert "moonfed.server_rules.server_rule" in of_files["moonfed.server_rules"]  # for type checkers
    assert "moonfed.serving.http.codec" in of_files["moonfed.serving.http.app"]  # a module from its package
    assert {"map.js", "dom.js"} <= of_scripts["app.js"]  # when the page is shown, and at once


@pytest.mark.parametrize("graph", [graph_of_files, graph_of_parts, graph_of_scripts], ids=["files", "parts", "scripts"])
def test_no_circle(graph: Callable[[], Graph]) -> None:
    assert circle(graph()) == []
