"""Documents name only files that exist, and stay within 100 columns; `make docs` checks their links."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.tutorial import SAVED

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
CODE = re.compile(r"`([^`\n]+)`")
FENCE = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
TOP_LEVEL = sorted(path.name for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith("."))
PATH = re.compile(rf"(?:{'|'.join(TOP_LEVEL)})/[\w./-]*")
GENERATED = ("build/",)
SOURCES = [
    f"/{path.relative_to(ROOT)}"
    for part in TOP_LEVEL
    if part not in {"build", "data", "docs"}
    for path in (ROOT / part).rglob("*.*")
    if path.suffix in {".py", ".proto"}
]
WIDTH = 100


def missing_paths(text: str) -> list[str]:
    paths = [quoted for quoted in CODE.findall(FENCE.sub("", text)) if PATH.fullmatch(quoted)]
    return [path for path in paths if not path.startswith(GENERATED) and not (ROOT / path).exists()]


def missing_modules(text: str) -> list[str]:
    """Modules may be named by the end of their path, such as `rounds/settings.py`; readers of tutorials save some."""
    modules = [quoted for quoted in CODE.findall(FENCE.sub("", text)) if re.fullmatch(r"[\w/]+\.(py|proto)", quoted)]
    known = [*SOURCES, *(f"/{name}" for name, _ in SAVED.findall(text))]
    return [name for name in modules if not any(source.endswith(f"/{name}") for source in known)]


def long_lines(text: str) -> list[str]:
    """Tables, quoted output, indented commands and lines with a web link may be longer."""
    lines = FENCE.sub("", text).splitlines()
    prose = [line for line in lines if not line.startswith(("|", "    ")) and "](http" not in line]
    return [line for line in prose if len(line) > WIDTH]


@pytest.mark.parametrize("faults", [missing_paths, missing_modules, long_lines])
def test_documents_have_no(faults: Callable[[str], list[str]]) -> None:
    found = {str(path.relative_to(ROOT)): faults(path.read_text()) for path in DOCUMENTS}
    assert {path: lines for path, lines in found.items() if lines} == {}


@pytest.mark.parametrize("document", ["README.md", "docs/security.md"])
def test_documents_warn_that_a_plans_author_can_read_the_data(document: str) -> None:
    """No check of operators can prevent that, so the documents must say so."""
    text = " ".join((ROOT / document).read_text().replace("*", "").split())
    assert re.search(r"[Aa]uthor(?: of a plan)? can read the data that it trains on", text)
