"""Tests assert values: each sentence of the product is quoted in one test file at most, and few tests quote any."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.test_mirroring import PARTS

ROOT = Path(__file__).parents[1]
OPEN = ("tests/serving/",)  # Triton's sentences are the server's contract
MOST_QUOTING = 0.15  # of all tests
LENGTH = 5  # words in a row
Words = tuple[str, ...]


def texts(tree: ast.AST) -> Iterator[str]:
    """Yield the strings of a sentence's length, but no docstrings and programs; values in f-strings divide them."""
    statements: set[int] = set()
    for node in ast.walk(tree):  # a statement precedes its value
        if isinstance(node, ast.Expr):
            statements.add(id(node.value))
        elif isinstance(node, ast.Constant) and isinstance(text := node.value, str) and id(node) not in statements:
            yield from [text] if text.count(" ") >= LENGTH - 1 and "\n" not in text.strip() else []


def runs(text: str) -> set[Words]:
    """Return every run of words in a text, without what a regular expression escapes."""
    words = [word.strip("'.").lower() for word in re.findall(r"[\w'.-]*\w", text.replace("\\", ""))]
    return {tuple(words[i : i + LENGTH]) for i in range(len(words) - LENGTH + 1)}


@pytest.fixture(scope="module")
def sentences() -> set[Words]:
    """Runs of words that one string of the product has."""
    owners: dict[Words, set[str]] = defaultdict(set)
    for part in set(PARTS) - {"serving"}:
        for file in (ROOT / part).rglob("*.py"):
            for text in texts(ast.parse(file.read_text())):
                for run in runs(text):
                    owners[run].add(text)
    return {run for run, owned in owners.items() if len(owned) == 1}


def quoting(file: Path, sentences: set[Words]) -> Iterator[tuple[str, set[Words]]]:
    """Yield each test of a file with the runs of words that it quotes, in its decorators and module's constants too."""
    tree = ast.parse(file.read_text())
    constants = {
        target.id: node
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            names = {name.id for name in ast.walk(node) if isinstance(name, ast.Name)} & constants.keys()
            read = [node, *(constants[name] for name in names)]
            yield node.name, {run for each in read for text in texts(each) for run in runs(text)} & sentences


def test_each_sentence_is_quoted_in_one_test_file_and_few_tests_quote_any(sentences: set[Words]) -> None:
    files: dict[Words, set[str]] = defaultdict(set)
    tests = quoters = 0
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        name = str(file.relative_to(ROOT))
        for _, quoted in quoting(file, sentences):
            tests, quoters = tests + 1, quoters + bool(quoted)
            for run in quoted if not name.startswith(OPEN) else ():
                files[run].add(name)
    repeated = {" ".join(run): sorted(where) for run, where in files.items() if len(where) > 1}
    assert not repeated, f"assert values instead, with tests.support.refusals: {repeated}"
    assert quoters / tests <= MOST_QUOTING, f"{quoters / tests:.1%} of the tests quote a sentence"
